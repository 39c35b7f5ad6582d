#pragma once

#include <cstdint>

#include "agent/model/param_store.h"
#include "common/base/result.h"

namespace lockstep::model {

// Adds up sums over the samples of a micro-batch that several ranks share: those of synchronized
// batch normalisation. All of these ranks call in the same order. One thread.
class BatchSums {
 public:
  virtual ~BatchSums() = default;

  // values[i] <- their sum over the ranks, the same bits on each. They are in memory of the
  // computing stream's device, in stream order. The pass is that of the work before, for
  // measurements. kTimeout or kUnavailable if a peer is missing.
  virtual Status add_up(double* values, int64_t count, Pass pass) = 0;
};

// For a rank that has the whole micro-batch: a no-op.
class OwnBatch final : public BatchSums {
 public:
  Status add_up(double*, int64_t, Pass) override { return {}; }
};

}  // namespace lockstep::model
