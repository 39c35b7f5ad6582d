#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

// Pads columns to their widest cell, three spaces apart, without trailing spaces. `widths`, if
// given, keeps the widths from one part of a table to the next.
std::string aligned(const std::vector<std::vector<std::string>>& rows,
                    std::vector<size_t>* widths = nullptr);

}  // namespace lockstep::cli
