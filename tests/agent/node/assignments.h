#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "common/api/agent_messages.h"

namespace lockstep::node {

// Options for an assignment of a train job to node 0 of `nodes`, as the controller would make it.
// The fake worker reads its orders from `job_name`.
struct AssignmentOptions {
  std::string job_uid = "uid-1";
  int64_t round = 1;
  int64_t nodes = 1;
  int64_t processes = 1;
  std::vector<int64_t> left_out{};  // node indices
  int64_t incarnation = 1;
  std::string job_name = "wait";
  int64_t port = 29500;
  int64_t grace_seconds = 30;
};

inline Assignment make_assignment(const AssignmentOptions& options) {
  TrainingJobSpec spec;
  spec.nodes = options.nodes;
  spec.processesPerNode = options.processes;
  WorldInput input{.job_uid = options.job_uid, .round = options.round, .members = {}};
  for (int64_t node = 0; node < options.nodes; ++node) {
    if (std::ranges::count(options.left_out, node) > 0) continue;
    const std::string host = "127.0.0." + std::to_string(node + 1);
    input.members.push_back({node, node == 0 ? options.incarnation : 1, host, options.port});
  }
  Assignment assignment;
  assignment.job_name = options.job_name;
  assignment.job_namespace = "space";
  assignment.world = *make_world(spec, input);
  assignment.hash = world_hash(assignment.world);
  assignment.train = TrainSpec{};
  assignment.train->model = {.layers = 2, .width = 64, .heads = 4, .context = 32};
  assignment.train->data.path = "/data/text";
  assignment.checkpoint.path = "/ckpt";
  assignment.grace_period_seconds = options.grace_seconds;
  return assignment;
}

}  // namespace lockstep::node
