#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/shard/block_places.h"
#include "agent/parallel/step_sink.h"
#include "common/base/result.h"
#include "common/layout/shard_layout.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// The groups of a rank with shards. Both serve memory of the rank's device.
struct ShardGroups {
  comm::Communicator& shards;    // the ranks that divide the state
  comm::Communicator& replicas;  // the ranks with the same shard as this one
};

// Gradients of which each rank gets the sums of its shard: units are reduce-scattered over the
// ranks with the other shards, then all-reduced over those with the same one. A unit starts as soon
// as backward has completed it, and the rest of backward overlaps with it. On a GPU all of it runs
// on a stream of its own. One thread. Two forms:
// - whole (ZeRO-1): each rank keeps the gradients of the arena, micro-batches accumulate there, and
//   only the last one is reduced. The sums are in the rank's slices of the arena.
// - sharded (ZeRO-2): only the shard is kept. Units are computed in places that they share
//   (gradient_places()), and every micro-batch is reduced and added to the shard.
class ShardedGradients final : public StepSink {
 public:
  struct Options {
    const ShardLayout& layout;   // outlives the sink
    GradientPlaces places = {};  // of the sharded form; empty: whole
    float* gradients = nullptr;  // of the arena or of the shard
    float* buffers = nullptr;    // places.count floats
    // As many bf16 values as the arena or places.count: gradients travel as bf16. Null: as fp32.
    kernels::Bf16* travelling = nullptr;
  };
  struct Streams {
    kernels::Stream& compute;        // gradients are made and read on it
    kernels::Stream& communication;  // nobody else's
  };
  // Memory, groups, ops and streams, of one device, outlive the sink.
  static Result<ShardedGradients> create(const Options& options, const ShardGroups& groups,
                                         const kernels::OpTable& ops, const Streams& streams);

  // Called around each wait of the host for a unit: before it with true, after it with false.
  void observe_waits(std::function<void(bool begins)> observer) { observer_ = std::move(observer); }

  void begin_step(const kernels::OpTable& ops) override;
  void enable_reduction() override { is_last_ = true; }
  Status finish() override;
  Status wait() override;

  float* buffer(int64_t id) override;
  Status ready(int64_t id) override;
  Status end_micro_batch() override;

 private:
  // A unit on its way.
  struct Flight {
    size_t unit = 0;
    bool is_reduced = false;  // over the shards; it is being added up over the replicas
    comm::Work work;
  };
  ShardedGradients(const Options& options, const ShardGroups& groups, const kernels::OpTable& ops,
                   const Streams& streams);

  bool is_whole() const { return options_.places.offsets.empty(); }
  bool is_stream_ordered() const { return groups_.shards.device_traits().is_stream_ordered; }
  int64_t offset(size_t unit) const;
  float* values(size_t unit) const;
  size_t place(size_t unit) const { return is_whole() ? 0 : options_.places.places[unit]; }
  // Whether two units have memory in common.
  bool overlap(size_t a, size_t b) const;
  // Whether units that are on their way have memory in common with this one.
  bool is_taken(size_t unit) const;
  // Where this rank's piece of a unit is, in the form in which it travels.
  comm::CommBuffer travelling(size_t unit, bool piece_only) const;
  // Makes a unit's place free of those that are on their way, and zero.
  void open(size_t unit);
  Status launch(size_t unit);
  // Goes on with a flight whose work is over. Returns whether it has landed.
  Result<bool> advance(Flight& flight);
  Status land(size_t unit);
  // Goes on with every flight that can.
  Status poll();
  Status settle_oldest();

  Options options_;
  ShardGroups groups_;
  const kernels::OpTable& ops_;
  Streams streams_;
  kernels::Event complete_;  // a unit, on the computing stream
  struct Landing {
    kernels::Event event;  // on the other stream
    std::optional<size_t> unit;
  };
  std::array<Landing, 3> landings_;  // the last of each place
  std::vector<bool> open_;           // by unit: gradients are being added
  std::deque<Flight> flights_;
  std::vector<comm::Work> works_;  // stream-ordered ones, whose results are still to be had
  Status failed_;                  // in buffer(), which returns none
  std::function<void(bool)> observer_;
  bool is_last_ = false;  // of the step's micro-batches
};

}  // namespace lockstep::parallel
