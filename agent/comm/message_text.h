#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace lockstep::comm {

// Names for messages: "rank 3".
std::string rank_name(int64_t rank);
// "1, 4-7"
std::string rank_list(const std::vector<int>& ranks);
// "0.25 s", with three significant digits.
std::string seconds_text(Duration duration);

}  // namespace lockstep::comm
