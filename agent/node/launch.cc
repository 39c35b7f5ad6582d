#include "agent/node/launch.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

std::vector<std::string> with_variables(std::vector<std::string> env,
                                        const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    std::erase_if(env, [&](const std::string& entry) { return entry.starts_with(name); });
    env.push_back(variable);
  }
  return env;
}

std::vector<std::string> rank_variables(const Assignment& assignment, int64_t rank,
                                        int64_t local_rank) {
  const WorldAssignment& world = assignment.world;
  const WorldNode& first = world.nodes.front();
  const auto number = [](std::string_view name, int64_t value) {
    return std::string(name) + "=" + std::to_string(value);
  };
  return {"LOCKSTEP_JOB_UID=" + world.job_uid,
          "LOCKSTEP_JOB_NAME=" + assignment.job_name,
          number("LOCKSTEP_ROUND", world.round),
          "LOCKSTEP_WORLD_HASH=" + assignment.hash,
          number("RANK", rank),
          number("LOCAL_RANK", local_rank),
          number("WORLD_SIZE", world.world_size()),
          number("LOCAL_WORLD_SIZE", world.processes_per_node),
          number("NODE_RANK", assignment.node_index),
          "MASTER_ADDR=" + first.host,
          number("MASTER_PORT", first.port)};
}

}  // namespace

Launch make_launch(const Assignment& assignment, int64_t local_rank, const LaunchContext& context) {
  const WorldAssignment& world = assignment.world;
  Launch launch;
  launch.round = world.round;
  launch.rank = assignment.node_index * world.processes_per_node + local_rank;
  const std::string name = "rank-" + std::to_string(launch.rank);
  launch.log_path = context.work_folder + "/logs/" + name + ".log";
  launch.env = with_variables(context.env, rank_variables(assignment, launch.rank, local_rank));
  if (!assignment.train) {
    launch.argv = assignment.command;
    return launch;
  }
  launch.config_path = context.work_folder + "/" + name + ".json";
  launch.argv = {context.worker_binary, "--config", launch.config_path};
  WorkerConfig& config = launch.config;
  config.job_name = assignment.job_name;
  config.world = world;
  config.hash = assignment.hash;
  config.rank = launch.rank;
  config.train = *assignment.train;
  config.checkpoint = assignment.checkpoint;
  config.threads = assignment.threads_per_process > 0
                       ? assignment.threads_per_process
                       : std::max<int64_t>(context.cpus / world.processes_per_node, 1);
  config.token_file = context.token_file;
  config.rendezvous_timeout_seconds = assignment.rendezvous_timeout_seconds;
  return launch;
}

}  // namespace lockstep
