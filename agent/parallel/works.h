#pragma once

#include <utility>

#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep::parallel {

// Waits for all of them, and forgets them. Returns the first error.
template <class Works>
Status wait_for(Works& works) {
  Status first;
  for (comm::Work& work : works) {
    Status status = work.wait();
    if (first.ok() && !status.ok()) first = std::move(status);
  }
  works.clear();
  return first;
}

}  // namespace lockstep::parallel
