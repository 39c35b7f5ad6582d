#include "common/api/worker_config.h"

#include "common/api/message_fields.h"
#include "common/api/servers_view.h"

namespace lockstep {

template <>
struct Schema<WorkerConfig> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "jobName"}, &WorkerConfig::job_name);
    visit(Field{.name = "world", .required = true}, &WorkerConfig::world);
    visit(Field{.name = "hash", .required = true}, &WorkerConfig::hash);
    visit(Field{.name = "bootId", .bytes_max = 256}, &WorkerConfig::boot_id);
    visit(Field{.name = "rank", .minimum = 0, .required = true}, &WorkerConfig::rank);
    visit(Field{.name = "gpu", .minimum = -1, .maximum = kProcessesMax - 1}, &WorkerConfig::gpu);
    visit(Field{.name = "gpus", .minimum = 0}, &WorkerConfig::gpus);
    visit(Field{.name = "train", .required = true}, &WorkerConfig::train);
    visit(Field{.name = "parameterServers"}, &WorkerConfig::parameter_servers);
    visit(Field{.name = "serversView", .bytes_max = kServersViewBytesMax},
          &WorkerConfig::servers_view);
    visit(Field{.name = "checkpoint"}, &WorkerConfig::checkpoint);
    visit(Field{.name = "threads", .minimum = 1, .maximum = 4096}, &WorkerConfig::threads);
    visit(Field{.name = "cpus", .minimum = 0, .maximum = 65536}, &WorkerConfig::cpus);
    visit(Field{.name = "tokenFile"}, &WorkerConfig::token_file);
    visit(Field{.name = "rendezvousTimeoutSeconds", .minimum = 1, .maximum = 86400},
          &WorkerConfig::rendezvous_timeout_seconds);
    visit(Field{.name = "hangSeconds", .minimum = 1, .maximum = kHangSecondsMax},
          &WorkerConfig::hang_seconds);
    visit(Field{.name = "losses"}, &WorkerConfig::losses);
    visit(Field{.name = "progressFd", .minimum = -1, .maximum = 1 << 20},
          &WorkerConfig::progress_fd);
    visit(Field{.name = "shmFd", .minimum = -1, .maximum = 1 << 20}, &WorkerConfig::shm_fd);
    visit(Field{.name = "stateFd", .minimum = -1, .maximum = 1 << 20}, &WorkerConfig::state_fd);
    visit(Field{.name = "roundsFd", .minimum = -1, .maximum = 1 << 20}, &WorkerConfig::rounds_fd);
  }
};

Json to_json(const WorkerConfig& config) {
  return write_json(config);
}

Result<WorkerConfig> worker_config_from_json(const Json& document) {
  WorkerConfig config;
  Problems problems;
  read_json(document, config, "config", kReadStored, problems);
  if (problems.empty()) check_ranges(config, "config", problems);
  if (!problems.empty()) return to_error(problems);
  const Result<ServersView> view =
      servers_view_from_text(config.servers_view, server_count(config.world));
  if (!view.ok()) return invalid("config.serversView: " + view.error().message);
  const auto added = static_cast<int64_t>(view->servers.size() - first_servers(*view));
  if (config.rank >= config.world.world_size() + added) {
    return invalid("config.rank: " + std::to_string(config.rank) + " is not in the world of " +
                   std::to_string(config.world.world_size()) + " ranks");
  }
  const std::string hash = world_hash(config.world);
  if (config.hash != hash) {
    return invalid("config.hash: found " + in_quotes(config.hash) + ", expected " + hash);
  }
  return config;
}

}  // namespace lockstep
