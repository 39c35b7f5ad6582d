#pragma once

#include <memory>
#include <string>

#include "local/controller_child.h"
#include "local/http/server.h"
#include "local/node/embedded_node_api.h"
#include "local/node/local_node.h"
#include "local/node/process_host.h"
#include "local/store/api.h"

namespace lockstep::local {

struct LocalClusterOptions {
  std::string program_folder;  // of lockstep-controller and lockstep-agent
  std::string folder;          // private files (token, pods); removed at the end
  std::string log_folder;      // kept
  uint64_t seed = 0;           // of UIDs and addresses: unique for the run
  uint16_t port = 0;           // of the API server; 0: the system chooses
  bool tls = false;            // for clients that are not ours
  StorageLimits limits = {};   // of what the API server holds
  // Empty: one machine named "local", with all CPUs, which takes every pod.
  std::vector<MachineOptions> machines;
  HeartbeatOptions heartbeat;             // of the machines
  NodeControllerOptions node_controller;  // and what follows where there is none
  // True: <pod>.log files that stay; false: by pod and container, removed with the pod.
  bool keep_logs = false;
  // Where containers without a workingDir begin; empty: in a folder of their own.
  std::string working_folder;
};

// How a client reaches the API server.
struct ClusterAccess {
  std::string url;
  std::string token;
  std::string certificate;  // PEM, its own authority; empty: plain HTTP
};

// A whole cluster on this machine: embedded API server, controller, and one or more machines.
// Everything ends with the object, or with this process, however that happens.
class LocalCluster {
 public:
  // `clock` outlives it. kUnavailable, kNotFound: a folder, port or program is not to be had.
  static Result<std::unique_ptr<LocalCluster>> start(const Clock& clock,
                                                     const LocalClusterOptions& options);
  ~LocalCluster();

  Api& api() { return *api_; }
  ProcessHost& host() { return *host_; }
  LocalNode& node() { return *node_; }
  ControllerChild& controller() { return *controller_; }
  const std::string& controller_log() const { return controller_log_; }
  const ClusterAccess& access() const { return access_; }
  // From here on nobody makes new pods; controller() is gone.
  void stop_controller() { controller_.reset(); }

 private:
  LocalCluster() = default;
  Status start_server(const LocalClusterOptions& options);
  Status start_controller(const LocalClusterOptions& options);

  std::string folder_;
  std::string controller_log_;
  ClusterAccess access_;
  // In the order in which they depend on each other.
  std::unique_ptr<Api> api_;
  std::unique_ptr<EmbeddedNodeApi> node_api_;
  std::unique_ptr<ProcessHost> host_;
  std::unique_ptr<LocalNode> node_;
  std::unique_ptr<ApiServer> server_;
  std::unique_ptr<ControllerChild> controller_;
};

// 256 random bits of the system, 64 hex digits.
Result<std::string> random_secret();
// Programs that a local run starts, all of them beside each other; kNotFound names the first that
// is missing.
Status check_programs(const std::string& program_folder);

}  // namespace lockstep::local
