#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "agent/parallel/held_state.h"
#include "common/base/result.h"
#include "common/layout/state_layout.h"

namespace lockstep::parallel {

// The part of a model's state that one rank saves: pieces of its shard, of the parameters and of
// each of the optimizer's states.
struct StateShare {
  std::vector<StateLayout::ShardPiece> pieces;
  int64_t shard_begin = 0;                    // where the values below begin in the shard
  std::vector<std::span<const float>> kinds;  // of the parameters, then of the optimizer's states
};

// Copies the values of a range of a shard to host memory: those of kind k to to[k]. `copy` copies
// consecutive ones.
using CopyValues = std::function<void(std::span<const float> from, float* to)>;
Status copy_range(const HeldState& state, const StateLayout::ShardRange& range,
                  std::span<float* const> to, const CopyValues& copy);

// A copy in host memory of a range of a rank's shard, for each kind of a model's state. All of its
// memory is allocated and touched by the constructor, so that taking a copy is limited by memory
// bandwidth alone: kinds x range x 4 bytes are read and written once.
class Snapshot {
 public:
  Snapshot(const StateLayout::ShardRange& range, size_t kinds);

  // Copies the values of a state with as many kinds.
  Status take(const HeldState& state);
  std::vector<std::span<const float>> kinds() const;

 private:
  StateLayout::ShardRange range_;
  std::vector<std::vector<float>> values_;  // by kind
};

}  // namespace lockstep::parallel
