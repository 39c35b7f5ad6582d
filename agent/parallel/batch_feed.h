#pragma once

#include <optional>

#include "agent/model/device_batch.h"
#include "common/base/result.h"

namespace lockstep::parallel {

using model::DeviceBatch;

// Provides a rank's micro-batches in their order. Used by one thread.
class BatchFeed {
 public:
  virtual ~BatchFeed() = default;

  // Returns the next micro-batch, valid until the next call: work that reads it has been issued on
  // the composition's stream by then. Nothing if there is none left, which ends an evaluation.
  virtual Result<std::optional<DeviceBatch>> next() = 0;
};

}  // namespace lockstep::parallel
