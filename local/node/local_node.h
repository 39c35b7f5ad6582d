#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "local/node/files.h"
#include "local/node/machine.h"
#include "local/node/node_api.h"
#include "local/node/node_context.h"
#include "local/node/node_controller.h"
#include "local/node/pod_binder.h"
#include "local/node/pod_worker.h"

namespace lockstep::local {

// Annotation of a Node: "off" cuts the machine's power; any other value, or none, restores it.
inline constexpr char kPowerAnnotation[] = "local.lockstep.dev/power";

struct LocalNodeOptions {
  std::vector<MachineOptions> machines = {{}};
  HeartbeatOptions heartbeat;
  SchedulerOptions scheduler;
  NodeControllerOptions node_controller;
  PodOptions pods;
  LogFilesOptions logs;
  uint64_t seed = 0;  // for pod addresses
};

// The machines of a local cluster: a minimal scheduler and node controller, and a minimal kubelet
// per machine. They talk to the API server through its REST API.
// Pods run as processes of this computer: one process group per container, one address in
// 127.0.0.0/8 per pod. One dedicated thread does all the work and never waits for processes; other
// threads start, sweep and probe them.
class LocalNode {
 public:
  // `api`, `host` and `clock` outlive the node. kUnavailable: its folders can't be created.
  static Result<std::unique_ptr<LocalNode>> start(NodeApi& api, ProcessHost& host,
                                                  const Clock& clock,
                                                  const LocalNodeOptions& options);
  // Kills what still runs, with all descendants.
  ~LocalNode();

  const PodLogs& logs() const { return logs_; }
  // True once no container process and no pod folder is left.
  bool is_empty();
  // Kills every container immediately, as a power cut would, and starts no more.
  void kill_all();

 private:
  struct Inbox;
  struct Computer {
    Machine machine;
    Resources allocatable;
    bool is_booting = false;  // waits until all pods from before the power cut are gone
  };

  LocalNode(NodeApi& api, ProcessHost& host, const Clock& clock, const LocalNodeOptions& options);
  void loop();
  void step(std::deque<NodeMessage> messages);
  static void read(Feed& feed, const std::function<void(const Json& object, bool deleted)>& apply);
  void node_changed(const Json& node, bool deleted);
  void pod_changed(const Json& pod, bool deleted);
  void power_off(Computer& computer);
  void boot(Computer& computer);
  void step_machines();
  void step_pods();
  void step_pod(const std::string& uid);
  void mark_due(const std::string& uid) { due_pods_.insert(uid); }
  TimePoint next_deadline() const;

  const Clock& clock_;
  const LocalNodeOptions options_;
  std::shared_ptr<Inbox> inbox_;  // messages from other threads
  ApiCaller caller_;
  AddressPool addresses_;
  GpuPool gpus_;
  LogFiles logs_;
  EventRecorder events_;
  PodBinder binder_;
  NodeController controller_;
  NetworkProber prober_;
  ProcessSweeper sweeper_;
  NodeContext context_;
  std::unique_ptr<Feed> pods_;
  std::unique_ptr<Feed> nodes_;
  std::unique_ptr<Feed> leases_;
  std::map<std::string, Computer> computers_;  // by the machine's name
  // By UID: pods that have not ended or still need cleanup.
  std::map<std::string, std::unique_ptr<PodWorker>> workers_;
  std::set<std::string> due_pods_;
  std::set<std::pair<TimePoint, std::string>> deadlines_;
  std::map<std::string, TimePoint> deadline_of_;
  TimePoint next_log_check_{};
  bool shutting_down_ = false;
  std::thread thread_;
};

}  // namespace lockstep::local
