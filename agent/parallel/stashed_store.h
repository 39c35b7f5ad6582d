#pragma once

#include <cstdint>
#include <vector>

#include "agent/parallel/rank_store.h"
#include "agent/parallel/replicated_store.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

// All parameters of this rank in several versions: the latest one, which updates change in place,
// and copies of the ones before it. Each update is preceded by one copy of the parameters on the
// computing stream. Source: Narayanan et al., "PipeDream", 2019 (weight stashing).
class StashedStore final : public RankStore {
 public:
  struct Options {
    ReplicatedStoreOptions latest;
    int64_t versions = 0;  // to keep in addition to the latest one
    // Memory of the device for as many arenas, back to back; it outlives the store.
    float* stash = nullptr;
    kernels::Bf16* stashed_copies = nullptr;  // if the latest version has copies
  };
  // The stream outlives the store.
  StashedStore(const Options& options, kernels::Stream& compute);

  void prefetch(const model::BlockUse&) override {}
  // The version is the latest one or one of the `versions` before it.
  Result<std::span<const model::ParamView>> get(const model::BlockUse& use) override;
  void release(const model::BlockUse&) override {}
  Status updating(int64_t step) override;
  Status updated(int64_t step) override {
    latest_version_ = step;
    return {};
  }
  Status settle() override { return {}; }

 private:
  struct Slot {
    ReplicatedStore store;
    int64_t version = -1;  // none
  };
  Slot& slot_of(int64_t version) { return slots_[static_cast<size_t>(version) % slots_.size()]; }

  ReplicatedStore latest_;
  std::vector<Slot> slots_;  // versions take turns in them
  int64_t latest_version_ = 0;
  kernels::Stream& compute_;
};

}  // namespace lockstep::parallel
