#pragma once

#include <optional>
#include <string_view>

namespace lockstep {

// Returns the dense bf16 matrix FLOP/s (without sparsity) that the datasheet states for one device.
// `device_name` is the name that CUDA reports ("NVIDIA H200"). 0 for devices that are not in the
// table.
double datasheet_flops_per_second(std::string_view device_name);
// Returns the datasheet's memory bandwidth in bytes/s, reads and writes together; 0 if unknown.
double datasheet_bytes_per_second(std::string_view device_name);

// Returns the share of the peak that a job reaches; nothing if either number is unknown (not above
// 0).
std::optional<double> flops_ratio(double flops_per_second, double peak_flops_per_second);

}  // namespace lockstep
