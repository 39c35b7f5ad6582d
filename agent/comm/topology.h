#pragma once

#include <string>

#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep {

// In a sentence, as this rank sees it: "4 ranks on 2 hosts: shared memory within, tcp 127.0.0.2 to
// 127.0.0.3 (lo) between; RDMA devices here: none". Sends nothing.
std::string topology_summary(const Communicator& group);

// For people, the same on every rank: which backend serves each pair of ranks, then the paths
// between hosts and, of each host, its RDMA devices and its GPUs with the links between them (as
// its first rank sees them; links not run on a GPU). A collective. Groups
// of more than kTopologyRanksMax ranks get the hosts alone, without the pairs.
constexpr int kTopologyRanksMax = 64;
Result<std::string> topology_table(Communicator& group);

}  // namespace lockstep
