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

// The purpose for which a block's parameters are read.
enum class Pass : uint8_t {
  kForward,   // in training: backward follows
  kBackward,  // of a forward pass before
  kEvaluate,
};

struct BlockUse {
  int64_t block = 0;
  int64_t version = kLatestVersion;
  Pass pass = Pass::kEvaluate;
};

// Provides a block's parameters: replicated, gathered from shards, offloaded or stashed. The
// executor calls it around each block (agent/model/passes.h); models only see ParamViews. Used by
// one thread.
class ParamStore {
 public:
  virtual ~ParamStore() = default;

  // Announces an upcoming get() of the same use, while at most one other block is in use. Does not
  // wait; failures are returned by get().
  virtual void prefetch(const BlockUse& use) = 0;
  // Returns views in the order of block_parameters(design, block), valid until the matching
  // release(). Those that the pass does not read (backward_reads()) need not be valid. kTimeout or
  // kUnavailable if a peer is missing.
  virtual Result<std::span<const ParamView>> get(const BlockUse& use) = 0;
  virtual void release(const BlockUse& use) = 0;
};

}  // namespace lockstep::model
