#pragma once

#include <algorithm>
#include <cstdint>

#include "agent/model/param_store.h"
#include "common/base/result.h"
#include "common/layout/model_config.h"
#include "kernels/device/dtype.h"

namespace lockstep::model {

// Rows of the residual stream's width C at the border of a tensor-parallel region: all R rows of a
// micro-batch in it, and the S rows that this rank keeps outside of it. With one part, S = R, and
// both are the same place. With as many parts as shards, S = R / parts, and the part of shard i is
// the rows [i * S, (i + 1) * S).
struct RegionRows {
  kernels::View whole;  // [R,C]
  kernels::View part;   // [S,C]
  int64_t count = 0;    // elements of the whole
  int64_t parts = 1;
};

// The work that a rank does while the sum of a region's rows travels.
enum class Overlap : uint8_t {
  kNone,     // none: sums take time of the cores that compute
  kWeights,  // in backward, the gradients of weights
  kChunks,   // also the rest of the product, which is summed chunk by chunk
};

// Returns in how many chunks rows of these bytes are summed, with Overlap::kChunks. Each chunk has
// at least kSumBytesMin: a product of few rows is slow, and small sums take other algorithms.
// Measured (bench/results, tensor_overlap).
constexpr int64_t kSumBytesMin = int64_t{256} << 10;
constexpr int64_t kSumsMax = 4;
constexpr int64_t sums_for(int64_t bytes) {
  return std::clamp<int64_t>(bytes / kSumBytesMin, 1, kSumsMax);
}

// The communication of a tensor-parallel region: a column-parallel product, the operations between,
// a row-parallel product. All ranks of the tensor group call in the same order. Buffers are dense,
// on the stream's device, and results are the same bits on every rank. Passes are those of the work
// before, for measurements. Sources: Shoeybi et al., "Megatron-LM", 2019 (its f and g, with one
// part); Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022
// (with a part for each shard).
class TpRegion {
 public:
  virtual ~TpRegion() = default;

  virtual TensorShard shard() const = 0;
  // The same on all ranks of the group, in all calls.
  virtual Overlap overlap() const = 0;
  // Called before a region in forward, and after it, where its gradient enters, in backward: fills
  // the whole with the parts of all shards. The part has a place of its own, or is the only one.
  virtual Status gather_rows(const RegionRows& rows, Pass pass) = 0;
  // Called after a region in forward, and before it in backward: sums the wholes of all shards into
  // the parts, which may be in their rows of the wholes. Afterwards only the parts are valid.
  virtual Status sum_rows(const RegionRows& rows, Pass pass) = 0;
  // Starts a sum_rows(), which is under way while the caller computes. finish() completes all sums
  // that were started, and returns the first error. Until then the caller does not touch their
  // rows, and calls nothing but these two.
  virtual void start_sum_rows(const RegionRows& rows) = 0;
  virtual Status finish(Pass pass) = 0;
  // For a loss over a sharded vocabulary: the maximum, then the sum, over the shards.
  virtual Status max(float* values, int64_t count) = 0;
  virtual Status sum(float* values, int64_t count) = 0;
  // For sampling: all[r * count ...] = `mine` of shard r. They do not overlap.
  virtual Status gather(kernels::ConstView mine, kernels::View all, int64_t count) = 0;
};

// For a single rank, which has the whole tensor: no-ops.
class WholeTensor final : public TpRegion {
 public:
  TensorShard shard() const override { return {}; }
  Overlap overlap() const override { return Overlap::kNone; }
  Status gather_rows(const RegionRows&, Pass) override { return {}; }
  Status sum_rows(const RegionRows&, Pass) override { return {}; }
  void start_sum_rows(const RegionRows&) override {}
  Status finish(Pass) override { return {}; }
  Status max(float*, int64_t) override { return {}; }
  Status sum(float*, int64_t) override { return {}; }
  // A whole vocabulary needs no other place.
  Status gather(kernels::ConstView, kernels::View, int64_t) override { return {}; }
};

}  // namespace lockstep::model
