#pragma once

#include <vector>

#include "agent/comm/make_communicator.h"
#include "bench/comm/settings.h"

namespace lockstep::bench {

// Returns the options with which each rank joins the others: listening sockets on ports that the
// system chooses, and shared memory. They are for processes that are forked afterwards. With kTcp
// and kEncryptedTcp every rank is its own host. kMixed has two hosts, each with half of the ranks.
// The other backends, those for GPUs included, have one host.
std::vector<comm::CommOptions> meet(Backend backend, int ranks);

// Pins the calling thread to the rank-th core that this process may use, modulo their number.
void pin_to_core(int rank);

}  // namespace lockstep::bench
