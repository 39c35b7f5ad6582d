#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/parameter_casts.h"
#include "agent/parallel/rank_store.h"
#include "agent/parallel/replicated_store.h"
#include "common/base/result.h"
#include "common/layout/shard_layout.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

// All parameters of a rank in one arena, of which it updates its slices (ZeRO-1 and 2). After an
// update each unit is all-gathered in place, the first one first; a block waits for its own units
// when it is next used, so the rest of the gathering overlaps with the next step's forward. One
// thread.
class RegatheredStore final : public RankStore {
 public:
  struct Options {
    ReplicatedStoreOptions replica;
    const ShardLayout& layout;              // outlives the store
    const ParameterCasts* casts = nullptr;  // of the copies; with copies
  };
  struct Streams {
    kernels::Stream& compute;
    kernels::Stream& communication;
  };
  // `group`: the ranks that divide the updates, for this store alone; it and all else outlive the
  // store.
  static Result<RegatheredStore> create(const Options& options, comm::Communicator& group,
                                        const Streams& streams);

  // As GatheredStore::observe_waits().
  void observe_waits(std::function<void(model::Pass pass, bool begins)> observer) {
    observer_ = std::move(observer);
  }

  void prefetch(const model::BlockUse&) override {}
  Result<std::span<const model::ParamView>> get(const model::BlockUse& use) override;
  void release(const model::BlockUse&) override {}
  Status updated(int64_t step) override;
  Status wait() override;
  Status settle() override;

 private:
  RegatheredStore(const Options& options, comm::Communicator& group, const Streams& streams);
  Status settle_unit(size_t unit);
  Status settle_units();
  Status await(comm::Work& work);

  Options options_;
  ReplicatedStore replica_;
  comm::Communicator& group_;
  Streams streams_;
  kernels::Event updated_;
  kernels::Event gathered_;
  std::vector<std::vector<size_t>> units_of_block_;
  std::vector<std::optional<comm::Work>> gathering_;  // by unit
  std::vector<comm::Work> works_;                     // stream-ordered ones
  std::function<void(model::Pass, bool)> observer_;
  int64_t step_ = 0;  // that the parameters are of
};

}  // namespace lockstep::parallel
