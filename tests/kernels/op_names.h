#pragma once

#include <string>
#include <vector>

namespace lockstep::kernels::op_cases {

// Returns the names of OpTable's members in their order, read from kernels/ops/op_table.h.
std::vector<std::string> op_names();

}  // namespace lockstep::kernels::op_cases
