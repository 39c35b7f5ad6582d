#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "agent/parallel/host_transfer.h"
#include "common/base/result.h"
#include "common/layout/state_layout.h"

namespace lockstep::parallel {

// The part of a model's state that one rank saves: pieces of its arena, of the parameters and of
// each of the optimizer's states.
struct StateShare {
  std::vector<StateLayout::ArenaPiece> pieces;
  int64_t arena_begin = 0;                    // where the values below begin in the arena
  std::vector<std::span<const float>> kinds;  // of the parameters, then of the optimizer's states
};

// A copy in host memory of a range of the arena, for each kind of a model's state. All of its
// memory is allocated and touched by the constructor, so that taking a copy is limited by memory
// bandwidth alone: kinds x range x 4 bytes are read and written once.
class Snapshot {
 public:
  Snapshot(const StateLayout::ArenaRange& range, size_t kinds);

  // Copies the values. `kinds` are those of the whole arena, in the transfer's device memory.
  Status take(HostTransfer& transfer, std::span<float* const> kinds);
  std::vector<std::span<const float>> kinds() const;

 private:
  StateLayout::ArenaRange range_;
  std::vector<std::vector<float>> values_;  // by kind
};

}  // namespace lockstep::parallel
