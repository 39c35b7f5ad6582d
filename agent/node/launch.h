#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/api/agent_messages.h"
#include "common/api/worker_config.h"

namespace lockstep {

// What all workers of this agent have in common.
struct LaunchContext {
  std::string worker_binary;
  std::string work_folder;
  std::string token_file;
  int64_t cpus = 1;              // that the pod may use
  std::vector<std::string> env;  // the agent's own
};

// What one worker needs to start: pure, made from the assignment.
struct Launch {
  int64_t round = 0;
  int64_t rank = 0;
  std::vector<std::string> argv;
  std::vector<std::string> env;
  std::string config_path;    // empty for a user's command, which has no config
  std::string progress_path;  // of a user's command alone
  WorkerConfig config;        // without its descriptors
  std::string log_path;
};

// `lockstep-worker --config FILE` for train, else the user's command; the environment is the
// agent's with the rank's variables (rank_environment.h). Threads are split evenly
// among the processes of the node where the job doesn't say how many, and its GPUs taken in turn:
// with as many ranks as GPUs, local rank i has GPU i. 0 <= local_rank < processes_per_node.
Launch make_launch(const Assignment& assignment, int64_t local_rank, const LaunchContext& context);

}  // namespace lockstep
