#include "local/local_cluster.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "common/base/sha256.h"
#include "local/node/program.h"

namespace lockstep::local {
Result<std::string> random_secret() {
  Digest bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return errno_error("[random] getrandom", errno);
  return hex(bytes);
}

Status check_programs(const std::string& program_folder) {
  for (const char* name : {"lockstep-controller", "lockstep-agent", "lockstep-worker"}) {
    std::string file = program_folder + "/" + name;
    if (access(file.c_str(), X_OK) != 0)
      return not_found("[programs] expected " + file +
                       " to be executable: build or install all of " +
                       "Lockstep's programs into one folder");
  }
  return {};
}

Result<std::unique_ptr<LocalCluster>> LocalCluster::start(const Clock& clock,
                                                          const LocalClusterOptions& options) {
  TRY(make_private_folder(options.folder));
  std::unique_ptr<LocalCluster> cluster(new LocalCluster);
  cluster->folder_ = options.folder;
  cluster->api_ = std::make_unique<Api>(clock, options.seed, options.limits);
  cluster->node_api_ = std::make_unique<EmbeddedNodeApi>(*cluster->api_);
  cluster->host_ = std::make_unique<ProcessHost>();
  LocalNodeOptions node{.heartbeat = options.heartbeat,
                        .node_controller = options.node_controller,
                        .pods = {.folder = options.folder + "/pods",
                                 .program_folder = options.program_folder,
                                 .working_folder = options.working_folder},
                        .logs = {.folder = options.log_folder, .keep = options.keep_logs},
                        .seed = options.seed};
  node.scheduler.enforce_resources = !options.machines.empty();
  node.machines.front().gpus = computer_gpus();
  if (!options.machines.empty()) node.machines = options.machines;
  TRY_ASSIGN(cluster->node_, LocalNode::start(*cluster->node_api_, *cluster->host_, clock, node));
  TRY(cluster->start_server(options));
  TRY(cluster->start_controller(options));
  return cluster;
}

Status LocalCluster::start_server(const LocalClusterOptions& options) {
  TRY_ASSIGN(access_.token, random_secret());
  ApiServerOptions server{.port = options.port, .token = access_.token, .logs = &node_->logs()};
  if (options.tls) {
    TRY_ASSIGN(server.certificate, make_local_certificate());
    access_.certificate = server.certificate->certificate;
  }
  TRY_ASSIGN(server_, ApiServer::start(*api_, server));
  access_.url = server_->url();
  return {};
}

Status LocalCluster::start_controller(const LocalClusterOptions& options) {
  std::string token_file = options.folder + "/token";
  std::string key_file = options.folder + "/key";
  TRY_ASSIGN(std::string key, random_secret());
  TRY(write_private_file(token_file, access_.token));
  TRY(write_private_file(key_file, key));
  controller_log_ = options.log_folder + "/controller.log";
  std::string program = options.program_folder + "/lockstep-controller";
  SpawnSpec spec{
      .program = program,
      .arguments = {program, "--server", access_.url, "--token-file", token_file, "--key-file",
                    key_file, "--leader-elect=false", "--agents-are-current",
                    // The server belongs to this machine and needs no protection from
                    // its controller.
                    "--qps", "1000", "--burst", "2000",
                    // Its pods are processes of the user, who may do the same anyway.
                    "--pod-policy=privileged"},
      .environment = merged_environment({}),
      .working_folder = options.folder,
      .output_file = controller_log_};
  if (!access_.certificate.empty()) {
    std::string ca_file = options.folder + "/ca.crt";
    TRY(write_private_file(ca_file, access_.certificate));
    spec.arguments.insert(spec.arguments.end(), {"--ca-file", ca_file});
  }
  controller_ = std::make_unique<ControllerChild>(*host_, ControllerChildOptions{.spec = spec});
  return {};
}

LocalCluster::~LocalCluster() {
  controller_.reset();
  server_.reset();
  node_.reset();
  host_.reset();
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace lockstep::local
