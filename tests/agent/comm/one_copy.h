#pragma once

#include "agent/comm/peer_memory.h"

namespace lockstep::test {

// Returns this process's own memory, as a peer would read it.
comm::PeerMemory own_memory();

// Whether the kernel lets a process of this user read from another one that has the same parent, as
// ranks of a host do. If not, single copies are impossible here, and tests that need them are
// skipped.
bool ranks_can_read_each_other();

}  // namespace lockstep::test

// For tests that need single copies.
#define SKIP_WITHOUT_ONE_COPY()                       \
  if (!::lockstep::test::ranks_can_read_each_other()) \
  GTEST_SKIP() << "processes may not read each other's memory here"
