#pragma once

#include <cstdint>
#include <optional>

#include "common/api/agent_messages.h"
#include "common/api/collective_board.h"
#include "common/base/clock.h"

namespace lockstep::node {

// Summarises a rank's board for the agent's state. Reports a wait only after it has lasted
// kWaitReportDelay, so that normal communication does not change the agent's state.
class BoardWatch {
 public:
  // A process without a heartbeat for this long counts as lifeless. Heartbeats come once a second.
  static constexpr Duration kLifeless = std::chrono::seconds(5);

  struct RankHealth {
    std::optional<WorkerWait> wait;
    TimePoint waits_since{};
    bool is_lifeless = false;
  };
  // Call periodically. Time between calls in which nobody looked does not count against the rank:
  // the whole pod may have been paused.
  RankHealth poll(const CollectiveBoard& board, TimePoint now);

 private:
  uint64_t beats_ = 0;
  TimePoint beat_at_{};  // when the last heartbeat was seen
  TimePoint polled_at_{};
};

}  // namespace lockstep::node
