#pragma once

#include <compare>
#include <optional>
#include <string_view>

namespace lockstep {

// The order of two resourceVersions of one kind of object, where both are decimal numbers without
// leading zeros; nullopt for anything else, of which equality alone is known.
// Source: KEP-5504, apimachinery/pkg/util/resourceversion.
std::optional<std::strong_ordering> compare_versions(std::string_view a, std::string_view b);

}  // namespace lockstep
