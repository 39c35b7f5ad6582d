#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agent/parallel/rank_store.h"
#include "common/base/result.h"
#include "common/layout/model_design.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

struct ReplicatedStoreOptions {
  ModelDesign design;
  std::vector<int64_t> blocks;  // that the rank has
  ParameterArena arena;
  // Memory of the device, of arena.count elements each, zeroed; it outlives the store.
  float* parameters = nullptr;
  kernels::Bf16* copies = nullptr;  // for the products; null: they read the parameters themselves
};

// All parameters of this rank in one flat fp32 arena (common/layout/parameters.h), the same on
// every rank of the data axis. There is one version, the latest.
class ReplicatedStore final : public RankStore {
 public:
  explicit ReplicatedStore(const ReplicatedStoreOptions& options);

  void prefetch(const model::BlockUse&) override {}
  Result<std::span<const model::ParamView>> get(const model::BlockUse& use) override;
  void release(const model::BlockUse&) override {}
  Status updated(int64_t) override { return {}; }
  Status settle() override { return {}; }

  const ParameterArena& arena() const { return arena_; }
  float* parameters() { return parameters_; }
  // The bf16 copies, which an optimizer keeps up to date; null if there are none.
  kernels::Bf16* copies() { return copies_; }

 private:
  ParameterArena arena_;
  float* parameters_;
  kernels::Bf16* copies_;
  std::vector<std::vector<model::ParamView>>
      views_;  // by block of the model; empty if the rank lacks it
};

}  // namespace lockstep::parallel
