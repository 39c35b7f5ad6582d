#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/train/weights/checkpoint_weights.h"
#include "kernels/device/dtype.h"

namespace lockstep::train {

// The bytes of a safetensors file's data that the tensor takes.
uint64_t data_bytes(const WeightTensor& tensor, kernels::DType dtype);

// Divides tensors, in their order, among safetensors files of at most `file_bytes_max` bytes each,
// headers included. A tensor that is larger gets a file of its own. Returns how many tensors each
// file has; a limit of 0 is none.
std::vector<size_t> split_tensors(std::span<const WeightTensor> tensors, kernels::DType dtype,
                                  uint64_t file_bytes_max);

// "model-00002-of-00005.safetensors": the name that Hugging Face gives the second of five files.
std::string weight_file_name(size_t number, size_t files);

}  // namespace lockstep::train
