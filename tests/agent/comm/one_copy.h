#pragma once

#include "agent/comm/peer_memory.h"

namespace lockstep::test {

// This process, read by itself.
PeerMemory own_memory();

// Whether the kernel lets a process of this user read from another one that the same process has
// started, as ranks of a host are: else one copy is not to be had here, and what needs it is
// skipped.
bool ranks_can_read_each_other();

}  // namespace lockstep::test

// In a test that needs it.
#define SKIP_WITHOUT_ONE_COPY()                       \
  if (!::lockstep::test::ranks_can_read_each_other()) \
  GTEST_SKIP() << "processes may not read each other's memory here"
