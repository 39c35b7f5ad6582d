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
  std::string program_folder;  // folder with Lockstep's programs
  std::string folder;          // private files (token, pods); removed at the end
  std::string log_folder;      // kept
  uint64_t seed = 0;           // for UIDs and addresses; unique per run
  uint16_t port = 0;           // of the API server; 0: the system chooses
  bool tls = false;            // for clients other than ours
  StorageLimits limits = {};   // for the objects that the API server stores
  // If empty: one machine named "local" with all CPUs, which accepts every pod.
  std::vector<MachineOptions> machines;
  HeartbeatOptions heartbeat;             // of every machine
  NodeControllerOptions node_controller;  // how it treats machines that fall silent
  // True: <pod>.log files, which are kept. False: by pod and container, removed with the pod.
  bool keep_logs = false;
  // Where containers without a workingDir start; if empty, in a folder of their own.
  std::string working_folder;
};

// How a client reaches the API server.
struct ClusterAccess {
  std::string url;
  std::string token;
  std::string certificate;  // PEM of the server's own CA; empty: plain HTTP
};

// A whole cluster on this machine: embedded API server, controller, and one or more machines. All
// its processes end with the object, or with this process even if it is killed.
class LocalCluster {
 public:
  // `clock` outlives the cluster. kUnavailable, kNotFound: a folder, port or program is not
  // available.
  static Result<std::unique_ptr<LocalCluster>> start(const Clock& clock,
                                                     const LocalClusterOptions& options);
  ~LocalCluster();

  Api& api() { return *api_; }
  ProcessHost& host() { return *host_; }
  LocalNode& node() { return *node_; }
  ControllerChild& controller() { return *controller_; }
  const std::string& controller_log() const { return controller_log_; }
  const ClusterAccess& access() const { return access_; }
  // Nothing creates pods afterwards, and controller() is gone.
  void stop_controller() { controller_.reset(); }

 private:
  LocalCluster() = default;
  Status start_server(const LocalClusterOptions& options);
  Status start_controller(const LocalClusterOptions& options);

  std::string folder_;
  std::string controller_log_;
  ClusterAccess access_;
  // In order of dependency.
  std::unique_ptr<Api> api_;
  std::unique_ptr<EmbeddedNodeApi> node_api_;
  std::unique_ptr<ProcessHost> host_;
  std::unique_ptr<LocalNode> node_;
  std::unique_ptr<ApiServer> server_;
  std::unique_ptr<ControllerChild> controller_;
};

// Returns 256 random bits from the system, as 64 hex digits.
Result<std::string> random_secret();
// Checks that all programs that a local run starts are in this folder. kNotFound names the first
// missing one.
Status check_programs(const std::string& program_folder);

}  // namespace lockstep::local
