#pragma once

#include <vector>

#include "agent/comm/make_communicator.h"
#include "bench/comm/settings.h"

namespace lockstep {

// How the ranks of one backend meet: listening sockets on ports of the system's choice, and shared
// memory, for processes that are forked afterwards. Mixed: two hosts, the first half of the ranks
// and the second. Of GPUs: one host.
std::vector<CommOptions> meet(Backend backend, int ranks);

// Rank r on the r-th core that this process may use, and round again.
void pin_to_core(int rank);

}  // namespace lockstep
