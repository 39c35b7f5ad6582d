#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "common/layout/model_config.h"
#include "kernels/device/dtype.h"

namespace lockstep::model {

// The communication of a tensor-parallel region: a column-parallel product, the operations between,
// a row-parallel product. All ranks of the tensor group call in the same order. Buffers are dense,
// on the stream's device, and reduced in place to the same bits on every rank. Source: Shoeybi et
// al., "Megatron-LM", 2019 (its f and g).
class TpRegion {
 public:
  virtual ~TpRegion() = default;

  virtual TensorShard shard() const = 0;
  // Called in backward where forward entered the region: sums the partial gradients of the region's
  // input. (Forward needs no communication: every rank has the input.)
  virtual Status enter(kernels::View gradient, int64_t count) = 0;
  // Called in forward where the region ends: sums the partial outputs. (Backward needs nothing.)
  virtual Status leave(kernels::View output, int64_t count) = 0;
  // For a loss over a sharded vocabulary: the maximum, then the sum, over the shards.
  virtual Status max(float* values, int64_t count) = 0;
  virtual Status sum(float* values, int64_t count) = 0;
};

// For a single rank, which has the whole tensor: no-ops.
class WholeTensor final : public TpRegion {
 public:
  TensorShard shard() const override { return {}; }
  Status enter(kernels::View, int64_t) override { return {}; }
  Status leave(kernels::View, int64_t) override { return {}; }
  Status max(float*, int64_t) override { return {}; }
  Status sum(float*, int64_t) override { return {}; }
};

}  // namespace lockstep::model
