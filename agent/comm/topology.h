#pragma once

#include <string>

#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep::comm {

// Describes the group in one sentence, as this rank sees it: "4 ranks on 2 hosts: shared memory
// within, tcp 127.0.0.2 to 127.0.0.3 (lo) between; RDMA devices here: none". Sends nothing.
std::string topology_summary(const Communicator& group);

// Describes the group for people, with the same text on every rank:
// - the backend of each pair of ranks
// - the paths between hosts
// - the RDMA devices of each host, and its GPUs with the links between them, as its first rank sees
//   them (the links are untested on several GPUs)
// A collective. Groups of more than kTopologyRanksMax ranks get a summary and the hosts, without
// the pairs.
constexpr int kTopologyRanksMax = 64;
Result<std::string> topology_table(Communicator& group);

}  // namespace lockstep::comm
