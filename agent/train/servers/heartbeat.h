#pragma once

#include <thread>

#include "common/api/collective_board.h"

namespace lockstep::train {

// Shows on the page of a process without a communicator that the process lives, about once a
// second, until it is destroyed. A process whose board shows no beats any more is stopped, or its
// machine does not let it run.
class Heartbeat {
 public:
  // `board` outlives this; null: nothing is shown.
  explicit Heartbeat(CollectiveBoard* board);

 private:
  std::jthread thread_;
};

}  // namespace lockstep::train
