#pragma once

#include <string_view>

namespace lockstep {

// Products of bf16 without sparsity, FLOP/s, that the maker's datasheet promises of one device of
// that name (as CUDA gives it: "NVIDIA H200"); 0 for a device that the table doesn't have.
double datasheet_flops_per_second(std::string_view device_name);
// Bytes/s of its memory, read and written together, likewise.
double datasheet_bytes_per_second(std::string_view device_name);

}  // namespace lockstep
