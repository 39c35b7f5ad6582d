#pragma once

#include <string>
#include <vector>

namespace lockstep {

// "1, 4-7"
std::string rank_list(const std::vector<int>& ranks);

}  // namespace lockstep
