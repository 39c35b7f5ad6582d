#pragma once

#include <cstdint>
#include <span>

#include "common/base/result.h"
#include "kernels/device/dtype.h"

namespace lockstep::model {

// The newest version of the parameters. Other versions are numbered by optimizer step (PipeDream's
// weight stashing).
inline constexpr int64_t kLatestVersion = -1;

// A parameter as a block reads it: the local part of its tensor shard, dense, on the stream's
// device.
struct ParamView {
  const float* value = nullptr;  // fp32
  kernels::ConstView product;    // for matrix products: a bf16 copy, or the same as value
};

// Provides a block's parameters: replicated, gathered from shards, offloaded or stashed. The
// executor calls it around each block (agent/model/passes.h); models only see ParamViews. Used by
// one thread.
class ParamStore {
 public:
  virtual ~ParamStore() = default;

  // Announces an upcoming get(block, version). Does not wait; failures are returned by get().
  virtual void prefetch(int64_t block, int64_t version) = 0;
  // Returns views in the order of block_parameters(config, block), valid until the matching
  // release(). kTimeout or kUnavailable if a peer is missing.
  virtual Result<std::span<const ParamView>> get(int64_t block, int64_t version) = 0;
  virtual void release(int64_t block, int64_t version) = 0;
};

}  // namespace lockstep::model
