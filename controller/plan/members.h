#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::plan {

// Converts status.members, the incarnation of each node index: "1,1,2,1". Text that can't be parsed
// yields an empty list, as if no member had been admitted yet.
std::vector<int64_t> members_from_text(std::string_view text);
std::string members_to_text(const std::vector<int64_t>& members);

}  // namespace lockstep::plan
