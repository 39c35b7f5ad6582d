#pragma once

#include <cstdint>
#include <optional>

#include "common/base/result.h"

namespace lockstep::parallel {

// A micro-batch in memory of the device: tokens and targets are [rows, sequence], and negative
// targets are not counted.
struct DeviceBatch {
  const int32_t* tokens = nullptr;
  const int32_t* targets = nullptr;
  int64_t rows = 0;
  int64_t counted = 0;  // targets that are counted; all of them in training
};

// Provides a rank's micro-batches in their order. Used by one thread.
class BatchFeed {
 public:
  virtual ~BatchFeed() = default;

  // Returns the next micro-batch, valid until the next call: work that reads it has been issued on
  // the composition's stream by then. Nothing if there is none left, which ends an evaluation.
  virtual Result<std::optional<DeviceBatch>> next() = 0;
};

}  // namespace lockstep::parallel
