#pragma once

#include <string>
#include <vector>

#include "local/node/container_run.h"
#include "local/node/machine.h"
#include "local/node/node_context.h"
#include "local/node/pod_status.h"
#include "local/node/volumes.h"

namespace lockstep::local {

// Failure reason of a pod whose ports are taken on every address. A new pod would fail the same
// way.
inline constexpr char kNoAddressReason[] = "NoAddress";

// Runs one pod on one machine from binding to end, like a kubelet: address, volumes, init
// containers in order, containers, deadlines, termination, status. Used on the node's thread only.
class PodWorker {
 public:
  // `context` outlives the worker. If the pod's status shows that it ran here before, it continues
  // as after a power cut: what ran has ended, in an unknown way.
  PodWorker(NodeContext& context, const MachineOptions& machine, const Resources& allocatable,
            const Json& pod);
  // Gives the address and GPUs back and removes the files; no process may be left.
  ~PodWorker();
  PodWorker(const PodWorker&) = delete;
  PodWorker& operator=(const PodWorker&) = delete;

  const std::string& machine() const { return pod_.facts.node_name; }
  // Takes the server's new version of the pod.
  void changed(const Json& pod);
  void on_message(const NodeMessage& message);
  void step(TimePoint now);
  // The pod was removed from the server without waiting for us: kills its processes.
  void gone();
  // A power cut or our own shutdown: sends SIGKILL to all its processes immediately, reports
  // nothing.
  void kill_now();

  // True if no process is left and nothing remains to be reported.
  bool is_done() const { return done_; }
  TimePoint next_deadline() const;

 private:
  void recover(const Json& status);
  // Gets an address, GPUs and volumes; false: not yet, or never.
  bool prepare(TimePoint now);
  bool admit();
  // Takes GPUs for the containers' limits; false: not yet, or never.
  bool take_gpus(TimePoint now);
  void fail(const std::string& reason, const std::string& message);
  void stop(Duration grace);
  void step_containers(TimePoint now);
  bool is_active() const;
  bool is_over() const;
  // Returns false if the server must be asked again, at retry_report_at_.
  bool report(TimePoint now);
  bool finish(TimePoint now);
  // Schedules a retry if the server rejected the request for now.
  bool was_accepted(const ApiResponse& answer, TimePoint now);
  PodRecord record() const;
  template <class Visit>
  void each(Visit visit) {
    for (ContainerRun& run : init_) visit(run);
    for (ContainerRun& run : runs_) visit(run);
  }

  NodeContext& context_;
  PodContext pod_;
  PodFolder folder_{""};
  std::vector<ContainerRun> init_;
  std::vector<ContainerRun> runs_;
  bool planned_ = false;
  bool prepared_ = false;
  bool stopping_ = false;
  bool gone_ = false;
  bool done_ = false;
  TimePoint retry_at_{};
  TimePoint retry_report_at_ = TimePoint::max();  // after the server rejected a request
  TimePoint deadline_ = TimePoint::max();         // activeDeadlineSeconds
  WallTime started_{};
  std::string failure_reason_;
  std::string failure_message_;
  PodConditions conditions_;
  Json reported_;
};

}  // namespace lockstep::local
