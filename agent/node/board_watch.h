#pragma once

#include <cstdint>
#include <optional>

#include "common/api/agent_messages.h"
#include "common/api/collective_board.h"
#include "common/base/clock.h"

namespace lockstep {

// What a rank's board says of it, as far as somebody has to know: a wait is worth a word once it
// has lasted for kWaitTold, so that ranks which merely communicate change nothing in the agent's
// state.
class BoardWatch {
 public:
  // Without a beat for so long, a process stands still. They come once a second.
  static constexpr Duration kLifeless = std::chrono::seconds(5);

  struct Sight {
    std::optional<WorkerWait> wait;
    TimePoint waits_since{};
    bool is_lifeless = false;
  };
  // To be called again and again. Time in which nobody looked does not count against the rank: the
  // whole pod may have stood still.
  Sight look(const CollectiveBoard& board, TimePoint now);

 private:
  uint64_t beats_ = 0;
  TimePoint beat_at_{};  // as far as was seen
  TimePoint looked_at_{};
};

}  // namespace lockstep
