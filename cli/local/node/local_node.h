#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/local/node/address_pool.h"
#include "cli/local/node/api_caller.h"
#include "cli/local/node/machine.h"
#include "cli/local/node/pod_folder.h"
#include "cli/local/node/pod_plan.h"
#include "cli/local/node/pod_status.h"
#include "cli/local/node/process_host.h"
#include "cli/local/node/scheduler.h"
#include "cli/local/store/api.h"

namespace lockstep::local {

struct LocalNodeOptions {
  std::vector<MachineOptions> machines = {{}};
  HeartbeatOptions heartbeat;
  SchedulerOptions scheduler;
  std::string folder;          // the pods' files; made private, emptied pod by pod
  std::string log_folder;      // <pod>.log, kept
  std::string program_folder;  // a command's base name is looked up here first
  std::string working_folder;  // where containers without one begin; empty: the pod's folder
  uint64_t seed = 0;           // of the addresses
  size_t log_bytes_max = 64u << 20;
};

// Reason of a pod that failed because something else listens on its ports, whatever the address: a
// new pod would fare no better.
inline constexpr char kNoAddressReason[] = "NoAddress";

// The machines of a local cluster: a scheduler in small, and for each machine a kubelet in small,
// which runs the pods of an Api as processes of this computer, one process group each, with their
// own address in 127.0.0.0/8, and reports what becomes of them. They say nothing to the Api that
// could not be said by REST. Everything happens on one thread of its own.
class LocalNode {
 public:
  // `api`, `host` and `clock` outlive the node. kUnavailable: its folders can't be made.
  static Result<std::unique_ptr<LocalNode>> start(Api& api, ProcessHost& host, const Clock& clock,
                                                  const LocalNodeOptions& options);
  // Kills what still runs, with all descendants.
  ~LocalNode();

  // No container process and no folder of a pod is left.
  bool is_empty();
  // Kills every container at once, as a power cut would, and starts none any more.
  void kill_all();

 private:
  enum class State { kWaiting, kRunning, kEnded };
  struct Pod {
    Json object;
    PodPlan plan;
    ContainerFacts facts;
    PodFolder folder{""};
    State state = State::kWaiting;
    pid_t pid = -1;
    TimePoint retry_at{};  // kWaiting: when to look for its secrets again
    bool terminating = false;
    TimePoint kill_at{};
    bool deleted = false;  // from the Api already
  };
  struct Exit {
    std::string uid;
    ExitStatus status;
  };
  struct Inbox;

  LocalNode(Api& api, ProcessHost& host, const Clock& clock, const LocalNodeOptions& options);
  void loop();
  void read_changes();
  void read_node_changes();
  void step_machines();
  void place_pods();
  OwnerFacts owner_facts(const std::string& namespace_, const Json& reference);
  void apply(const Json& pod);
  void gone(const Json& pod);
  void start_pod(Pod& pod);
  Status take_address(Pod& pod);
  void give_address_back(Pod& pod);
  Status prepare(Pod& pod);
  Status launch(Pod& pod);
  void terminate(Pod& pod);
  void ended(Pod& pod, const ExitStatus& status);
  void refuse(Pod& pod, std::string_view reason, const std::string& message);
  void release(Pod& pod);
  void check_deadlines();
  TimePoint next_deadline() const;
  std::string marker(const Pod& pod) const;
  std::string log_file(const Pod& pod) const;
  std::string termination_message(const Pod& pod, const ExitStatus& status) const;
  void report(const Pod& pod, Json status);

  Api& api_;
  ApiCaller caller_;
  ProcessHost& host_;
  const Clock& clock_;
  const LocalNodeOptions options_;
  AddressPool addresses_;
  std::shared_ptr<Inbox> inbox_;  // what other threads tell the node's
  Watch watch_;
  Watch node_watch_;
  std::map<std::string, Machine> machines_;  // by name
  Scheduler scheduler_;
  std::map<std::string, Pod> pods_;  // by UID; the node's thread alone
  TimePoint next_log_check_{};
  std::thread thread_;
};

}  // namespace lockstep::local
