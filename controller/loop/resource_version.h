#pragma once

#include <compare>
#include <optional>
#include <string_view>

namespace lockstep::loop {

// Compares two resourceVersions of one kind of object. nullopt unless both are decimal numbers
// without leading zeros: of others, only equality is known. Source: KEP-5504,
// apimachinery/pkg/util/resourceversion.
std::optional<std::strong_ordering> compare_versions(std::string_view a, std::string_view b);

}  // namespace lockstep::loop
