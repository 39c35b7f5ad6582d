#pragma once

#include <cstdint>
#include <vector>

#include "agent/comm/core.h"
#include "agent/comm/frame_io.h"

namespace lockstep {

// One operation under way, as an algorithm sees it: ranks of its group, frames to send and to take,
// and a loop that moves them and waits.
class Exchange {
 public:
  Exchange(Core& core, const Operation& operation) : core_(core), operation_(operation) {}

  int rank() const { return operation_.group->rank; }
  int size() const { return static_cast<int>(operation_.group->ranks.size()); }

  // Frames to and from a rank of the group. `step` numbers the frames between two ranks.
  struct Part {
    int peer = 0;
    uint32_t step = 0;
    uint64_t bytes = 0;
  };
  Outgoing outgoing(const Part& part, const std::byte* payload) const;
  Incoming incoming(const Part& part, const Sink& sink) const;

  // Move what can move of a frame; to be called within a step of drive().
  Status send(Outgoing& frame, size_t ready);
  Status receive(Incoming& frame);

  // Calls step() until it says true, waiting in between while nothing moves. An error breaks the
  // communicator and is returned as the operation's. Step: Result<bool>().
  template <class Step>
  Status drive(Step step) {
    for (;;) {
      if (core_.fault().raised()) return stop();
      begin_step();
      const Result<bool> done = step();
      if (!done.ok()) return blame(done.error());
      if (*done) break;
      if (!wait()) return stop();
    }
    core_.waiter().moved();
    return {};
  }

 private:
  FrameHeader header(const Part& part) const;
  Link& link(int group_rank) const;
  void begin_step();
  // False if the communicator is broken.
  bool wait();
  Status stop();
  Status blame(const Error& error);
  void blame_silence(Duration silent);
  bool waits_for_one_who_left(int* who) const;

  Core& core_;
  const Operation& operation_;
  std::vector<Interest> interests_;
  bool moved_ = false;
  int in_hand_ = -1;  // the rank of the world whose frame is being moved
  bool waiting_ = false;
  TimePoint waiting_since_{};
  bool looked_after_leaving_ = false;
};

}  // namespace lockstep
