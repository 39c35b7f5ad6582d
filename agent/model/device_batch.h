#pragma once

#include <array>
#include <cstdint>

#include "common/layout/model_design.h"

namespace lockstep::model {

// Samples in memory of the device: the tensors that batch_design() declares, in its order.
struct DeviceBatch {
  int64_t rows = 0;     // samples
  int64_t counted = 0;  // terms of the loss; in training, BatchDesign::counted per sample
  std::array<const void*, kBatchTensorsMax> tensors{};

  // Returns a tensor of the declared type, which T is.
  template <class T>
  const T* tensor(size_t index) const {
    return static_cast<const T*>(tensors[index]);
  }
};

}  // namespace lockstep::model
