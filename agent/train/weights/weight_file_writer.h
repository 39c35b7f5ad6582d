#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/train/checkpoint/file_io.h"
#include "agent/train/weights/checkpoint_weights.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::train {

// A new safetensors file of weights that is being written, in the order of its header. One thread.
// Errors blame storage.
class WeightFileWriter {
 public:
  // Writes the header. The file must not exist yet.
  static Result<WeightFileWriter> create(const std::string& path,
                                         std::span<const WeightTensor> tensors,
                                         kernels::DType dtype);

  // Writes the next elements, which may belong to several tensors, in the file's dtype. bf16 rounds
  // to nearest even, and a NaN stays one (kernels::Cast).
  Status put(std::span<const float> values);
  // Syncs the file, to which all elements were written.
  Status finish();

 private:
  WeightFileWriter(File file, kernels::DType dtype, uint64_t missing)
      : file_(std::move(file)), dtype_(dtype), missing_(missing) {}

  File file_;
  kernels::DType dtype_;
  uint64_t missing_;  // bytes of tensors that were not written yet
  kernels::Stream cpu_;
  std::vector<kernels::Bf16> rounded_;
};

}  // namespace lockstep::train
