#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agent/model/param_store.h"
#include "common/base/result.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/op_table.h"

namespace lockstep {

struct ReplicatedStoreOptions {
  ModelConfig config;
  Stage stage;
  TensorShard shard;
  Precision precision = Precision::kF32;  // kBf16: a copy in bf16 is kept for the products
  Device device;
};

// All parameters of this rank in one flat fp32 arena (common/layout/parameters.h), the same on
// every rank of the data axis. There is one version, the latest.
class ReplicatedStore final : public ParamStore {
 public:
  // Parameters start as zero. kUnavailable where memory is short.
  static Result<ReplicatedStore> create(const ReplicatedStoreOptions& options);

  void prefetch(int64_t, int64_t) override {}
  Result<std::span<const ParamView>> get(int64_t block, int64_t version) override;
  void release(int64_t, int64_t) override {}

  const ParameterArena& arena() const { return arena_; }
  float* parameters() { return parameters_.f32(); }
  const float* parameters() const { return parameters_.f32(); }
  // The copies that an optimizer keeps up to date; null in fp32.
  Bf16* copies() { return static_cast<Bf16*>(copies_.data()); }
  // Makes the copies anew, after parameters were loaded or received.
  void refresh_copies(const OpTable& ops, Stream& stream);

 private:
  ReplicatedStore() = default;

  Stage stage_;
  ParameterArena arena_;
  Buffer parameters_;
  Buffer copies_;
  std::vector<std::vector<ParamView>> views_;  // by block of the stage
};

}  // namespace lockstep
