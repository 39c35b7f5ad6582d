#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/offload/far_memory.h"
#include "agent/parallel/parameter_casts.h"
#include "agent/parallel/rank_store.h"
#include "agent/parallel/shard/block_places.h"
#include "common/base/result.h"
#include "common/layout/shard_layout.h"
#include "common/layout/sharding.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// Parameters of which a rank keeps its shard (ZeRO-3, FSDP). A block's units are all-gathered
// before it computes, while the block before it does (prefetch()), and freed after it. In training
// the last block's stay from its forward to its backward, which follows. One thread.
class GatheredStore final : public RankStore {
 public:
  struct Options {
    ModelDesign design;
    std::vector<int64_t> blocks;  // that the rank has, ascending
    const ShardLayout& layout;    // its units are blocks; outlives the store
    ShardingOptions sharding;
    float* shard = nullptr;
    const FarMemory* far_shard = nullptr;   // the shard, if it is far from the device
    kernels::Bf16* shard_copies = nullptr;  // of the shard, to be gathered; with gathers_bf16
    float* gathered = nullptr;              // parameter_places() floats
    kernels::Bf16* copies = nullptr;        // as many, if products or gathers are bf16
    const ParameterCasts* casts = nullptr;  // of the copies; null: no product reads them
  };
  struct Streams {
    kernels::Stream& compute;
    kernels::Stream& communication;
  };
  // `group`: the ranks with the other shards, for this store alone. Everything outlives it.
  static Result<GatheredStore> create(const Options& options, comm::Communicator& group,
                                      const kernels::OpTable& ops, const Streams& streams);

  // Called around each wait of the host for a gather: before it with true, after it with false.
  void observe_waits(std::function<void(model::Pass pass, bool begins)> observer) {
    observer_ = std::move(observer);
  }

  void prefetch(const model::BlockUse& use) override;
  Result<std::span<const model::ParamView>> get(const model::BlockUse& use) override;
  void release(const model::BlockUse& use) override;
  Status updated(int64_t step) override;
  Status wait() override;
  Status settle() override;

 private:
  enum class State : uint8_t { kFree, kGathering, kPresent };
  // One of BlockPlaces::places.
  struct Place {
    State state = State::kFree;
    comm::Work work;
  };
  GatheredStore(const Options& options, comm::Communicator& group, const kernels::OpTable& ops,
                const Streams& streams);
  void make_views();
  const std::vector<size_t>& places_of(const model::BlockUse& use) const;
  bool reads(const model::BlockUse& use) const;
  bool keeps(const model::BlockUse& use) const;
  void displace(const UnitPlace& by);
  Status start(size_t place);
  Status fetch(const UnitPlace& where, const ShardUnit& unit);
  Status finish(size_t place, model::Pass pass);
  Status free_all();
  void await(comm::Work& work, model::Pass pass);

  Options options_;
  comm::Communicator& group_;
  const kernels::OpTable& ops_;
  Streams streams_;
  BlockPlaces places_;
  std::vector<Place> state_;                          // by place
  std::vector<std::vector<model::ParamView>> views_;  // by block of the model
  kernels::Event released_;                           // of places, on the computing stream
  kernels::Event gathered_;                           // on the other
  std::vector<comm::Work> works_;                     // stream-ordered ones
  std::function<void(model::Pass, bool)> observer_;
  Status failed_;  // in prefetch() and release(), which return none
  int64_t step_ = 0;
};

}  // namespace lockstep::parallel
