#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "agent/comm/communicator.h"
#include "agent/parallel/compose.h"
#include "agent/train/checkpoint/background.h"
#include "agent/train/checkpoint/memory_states.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// The ranks with which a rank exchanges copies of states: its holder keeps its copies, and it keeps
// those of its source. They are ranks of neighbouring nodes, in a circle of all nodes.
struct CopyPeers {
  int holder = -1;
  int source = -1;
};

// Nothing with a single node. Rank = place of the node x ranks of a node + local rank.
std::optional<CopyPeers> copy_peers(int rank, int ranks, int ranks_per_node);

// Copies a rank's state into memory that outlives its process, and to its holder, in the
// background: from the end of a step until the next one changes the state. All ranks end a step
// together, and a copy is over before its rank ends the next one. So when a copy begins on some
// rank, the one before is complete on every rank. One thread.
class StateKeeper {
 public:
  // The states of the source, kept for it.
  struct Held {
    CopyPeers peers;
    std::unique_ptr<comm::Communicator> group;  // all ranks, for these copies alone
    MemoryStates states;
  };
  // The model, with ComposeOptions::copies_share, and the clock outlive it.
  StateKeeper(MemoryStates own, std::optional<Held> held, parallel::Composition& model,
              const Clock& clock)
      : own_(std::move(own)), held_(std::move(held)), model_(model), clock_(clock) {}

  MemoryStates& own() { return own_; }
  // Null without copies.
  MemoryStates* held() { return held_ ? &held_->states : nullptr; }

  // Starts to copy the state as a step has left it; wait() was called since the last time.
  void begin(const KeptState& state);
  // Waits until the copies are complete. Errors are Composition::copy_share()'s and the
  // communicator's.
  Status wait();

  struct Counts {
    int64_t copies = 0;
    double copy_seconds = 0;     // in the background, with those to the holder
    double blocked_seconds = 0;  // in which training waited
  };
  const Counts& counts() const { return counts_; }

 private:
  Status copy(std::span<float> to, const KeptState& state);
  Status exchange(std::span<float> mine, const KeptState& state);

  MemoryStates own_;
  std::optional<Held> held_;
  parallel::Composition& model_;
  const Clock& clock_;
  Counts counts_;
  Background copying_;  // last: ends before the states go
};

}  // namespace lockstep::train
