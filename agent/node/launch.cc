#include "agent/node/launch.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "agent/node/rank_environment.h"

namespace lockstep::node {
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

std::vector<std::string> with_defaults(std::vector<std::string> env,
                                       const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    const bool is_set = std::any_of(
        env.begin(), env.end(), [&](const std::string& entry) { return entry.starts_with(name); });
    if (!is_set) env.push_back(variable);
  }
  return env;
}

}  // namespace

Launch make_launch(const Assignment& assignment, int64_t local_rank, const LaunchContext& context) {
  const WorldAssignment& world = assignment.world;
  Launch launch;
  launch.round = world.round;
  launch.rank = rank_in_round(assignment, local_rank);
  const std::string name = "rank-" + std::to_string(launch.rank);
  launch.log_path = context.work_folder + "/logs/" + name + ".log";
  const int64_t threads = assignment.threads_per_process > 0
                              ? assignment.threads_per_process
                              : std::max<int64_t>(context.cpus / world.processes_per_node, 1);
  launch.env =
      with_variables(context.env, rank_variables(assignment, local_rank, context.work_folder));
  launch.env = with_defaults(std::move(launch.env), default_variables(assignment, threads));
  // The agent's own concern.
  std::erase_if(launch.env, [](const std::string& entry) {
    return entry.starts_with(std::string(kRequestsVariable) + '=');
  });
  if (!assignment.train) {
    launch.argv = assignment.command;
    launch.progress_path = progress_path(context.work_folder, launch.rank);
    return launch;
  }
  launch.config_path = context.work_folder + "/" + name + ".json";
  launch.argv = {context.worker_binary, "--config", launch.config_path};
  WorkerConfig& config = launch.config;
  config.job_name = assignment.job_name;
  config.world = world;
  config.hash = assignment.hash;
  config.boot_id = context.boot_id;
  config.rank = launch.rank;
  if (assignment.gpus_per_node > 0) config.gpu = local_rank % assignment.gpus_per_node;
  config.gpus = assignment.gpus_per_node * std::ssize(world.members);
  config.train = *assignment.train;
  config.parameter_servers = assignment.parameter_servers;
  config.servers_view = assignment.servers_view;
  config.checkpoint = assignment.checkpoint;
  config.threads = threads;
  config.cpus = context.cpus;
  config.token_file = context.token_file;
  config.rendezvous_timeout_seconds = assignment.rendezvous_timeout_seconds;
  config.hang_seconds = assignment.hang_seconds;
  config.losses = assignment.losses;
  return launch;
}

}  // namespace lockstep::node
