#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/api/training_job.h"

namespace lockstep {

// status.rendezvous tells which nodes a round has, so that a controller that starts goes on with
// it. A round without nodeIndices has the nodes 0..n-1.

// Returns the node indices of the round, ascending, by place. Empty if the status contradicts
// itself or the number of processes of a node.
std::vector<int64_t> round_members(const RendezvousStatus& rendezvous, int64_t processes_per_node);

// Returns rendezvous.nodeIndices for these nodes, ascending: "0,2-5"; empty if they are 0..n-1.
std::string node_indices_text(std::span<const int64_t> indices);

}  // namespace lockstep
