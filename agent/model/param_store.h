#pragma once

#include <cstdint>
#include <span>

#include "common/base/result.h"
#include "kernels/device/dtype.h"

namespace lockstep {

// The newest version of the parameters; others are numbered by optimizer steps (PipeDream's stash).
inline constexpr int64_t kLatestVersion = -1;

// A parameter as a block reads it: the local part of its tensor shard, dense, on the stream's
// device.
struct ParamView {
  const float* value = nullptr;  // fp32
  ConstView product;             // what matrix products read: a bf16 copy, or value again
};

// Where a block's parameters come from: replicated, gathered from shards, offloaded, stashed. The
// executor calls it around each block (agent/model/passes.h); models see ParamViews alone. One
// thread.
class ParamStore {
 public:
  virtual ~ParamStore() = default;

  // A hint that get(block, version) comes soon. Does not wait; failures show in get().
  virtual void prefetch(int64_t block, int64_t version) = 0;
  // Views in the order of block_parameters(config, block), valid until the release() that pairs
  // with this get(). kTimeout or kUnavailable where a peer is missing.
  virtual Result<std::span<const ParamView>> get(int64_t block, int64_t version) = 0;
  virtual void release(int64_t block, int64_t version) = 0;
};

}  // namespace lockstep
