#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <random>

#include "agent/node/agent.h"
#include "agent/node/api.h"
#include "agent/node/cgroup.h"
#include "agent/node/files.h"
#include "agent/node/install.h"
#include "agent/node/options.h"
#include "agent/node/process.h"
#include "common/api/agent_messages.h"
#include "common/base/core_dumps.h"
#include "common/base/log.h"
#include "common/base/run_main.h"
#include "common/base/sha256.h"
#include "common/http/body_cipher.h"
#include "common/http/server.h"

// The agent of one pod: reads its identity, listens, and supervises until it is told to end.

namespace lockstep::node {
namespace {

constexpr int kExitUsage = 2;
constexpr Duration kDrainLimit = std::chrono::seconds(1);
// Enough that strangers rarely evict the controller between its greeting and its first request.
constexpr size_t kConnectionsMax = 512;

std::vector<std::string> own_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

std::map<std::string, std::string> by_name(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> result;
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) result[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return result;
}

std::string new_boot_id() {
  std::random_device random;
  std::string seed;
  for (int i = 0; i < 8; ++i) seed += std::to_string(random()) + ",";
  return hex(sha256(seed)).substr(0, 16);
}

AgentSettings settings_of(const AgentOptions& options, int signal_fd, const Cgroup& cgroup) {
  AgentSettings settings;
  settings.identity = {options.job_uid, new_boot_id(), options.node_index, options.incarnation};
  settings.limits.hold = std::chrono::seconds(options.hold_seconds);
  settings.job_name = options.job_name;
  settings.launch = {options.worker_binary, options.work_folder, options.token_file,
                     usable_cpus(cgroup),   own_environment(),   settings.identity.boot_id};
  settings.launch.keep_survivors = options.keep_survivors;
  settings.termination_path = options.termination_path;
  settings.create_termination = options.create_termination;
  settings.signal_fd = signal_fd;
  settings.output_fd = STDOUT_FILENO;
  return settings;
}

Status make_work_folders(const AgentOptions& options) {
  TRY(make_folders(options.work_folder + "/logs"));
  if (options.create_termination) {
    TRY(make_folders(std::filesystem::path(options.termination_path).parent_path()));
  }
  return {};
}

// Returns the job's token, or nothing if the Secret holds none. The agent then refuses everybody,
// so that the controller can tell why, and does not take the pod for one that fails.
Result<std::string> job_token(const AgentOptions& options) {
  const Result<std::string> token = read_small_file(options.token_file);
  if (!token.ok() && token.error().code != Code::kNotFound) return token.error();
  if (token.ok() && !token->empty()) return *token;
  log_error("the Secret with the job's token has none: refusing all requests",
            {{"error", token.ok() ? options.token_file + " is empty" : token.error().message}});
  return std::string();
}

Result<int> run_agent(const AgentOptions& options) {
  forbid_core_dumps();                             // it has the job's token
  TRY_ASSIGN(const int signal_fd, become_init());  // before the server's thread starts
  TRY_ASSIGN(const std::string token, job_token(options));
  TRY(make_work_folders(options));
  const SystemClock clock;
  const Cgroup cgroup = Cgroup::of_self();
  Agent agent(settings_of(options, signal_fd, cgroup), clock, cgroup);
  AgentApi api(agent, options.signed_only ? "" : token);
  const std::string name =
      pod_name(options.job_name, options.role, options.node_index, options.incarnation);
  TRY_ASSIGN(
      const std::unique_ptr<http::Server> server,
      http::Server::start(
          options.address, static_cast<int>(options.port), api,
          {.body_bytes_max = http::encrypted_size(kAssignmentBytesMax),
           .connections_max = kConnectionsMax,
           .guard = http::session_guards(
               {.server_name = name, .secret = token, .must_encrypt = options.must_encrypt})}));
  log_info("listening", {{"address", options.address},
                         {"port", server->port()},
                         {"job", options.job_name},
                         {"nodeIndex", options.node_index},
                         {"incarnation", options.incarnation}});
  const int exit_code = agent.run();
  server->stop(kDrainLimit);
  log_info("leaving", {{"exitCode", exit_code}});
  return exit_code;
}

int main_with(const std::vector<std::string>& arguments) {
  std::error_code ignored;
  const std::string binary = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto options = read_agent_options(arguments, by_name(own_environment()), binary);
  if (!options.ok()) {
    std::fprintf(stderr, "lockstep-agent: %s\n", options.error().message.c_str());
    return kExitUsage;
  }
  if (options->help) {
    std::fputs(agent_usage().c_str(), stdout);
    return 0;
  }
  set_log_options({.json = options->log_json, .program = "lockstep-agent"});
  if (!options->install_folder.empty()) {
    const Status installed = install_bundle(binary, options->install_folder);
    if (!installed.ok()) log_error("cannot install", {{"error", installed.error().message}});
    return installed.ok() ? 0 : 1;
  }
  const Result<int> exit_code = run_agent(*options);
  if (exit_code.ok()) return *exit_code;
  log_error("cannot run", {{"error", exit_code.error().message}});
  return 1;
}

}  // namespace
}  // namespace lockstep::node

namespace {

int program(int argc, char** argv) {
  return lockstep::node::main_with(std::vector<std::string>(argv + 1, argv + argc));
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-agent", program, argc, argv);
}
