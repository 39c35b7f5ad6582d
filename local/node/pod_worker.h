#pragma once

#include <string>
#include <vector>

#include "local/node/container_run.h"
#include "local/node/machine.h"
#include "local/node/node_services.h"
#include "local/node/pod_status.h"
#include "local/node/volumes.h"

namespace lockstep::local {

// Reason of a pod that failed because something else listens on its ports, whatever the address: a
// new pod would fare no better.
inline constexpr char kNoAddressReason[] = "NoAddress";

// One pod on one machine, from its binding to its end, as a kubelet runs it: address, volumes, init
// containers in order, containers, deadlines, termination, status. On the node's thread.
class PodWorker {
 public:
  // `services` outlives it. A pod that had run here before (its status says so) goes on as after a
  // power cut: what ran has ended, nobody knows how.
  PodWorker(NodeServices& services, const MachineOptions& machine, const Resources& allocatable,
            const Json& pod);
  // Gives the address back and removes the files; no process may be left.
  ~PodWorker();
  PodWorker(const PodWorker&) = delete;
  PodWorker& operator=(const PodWorker&) = delete;

  const std::string& machine() const { return pod_.facts.node_name; }
  // What the server says now.
  void changed(const Json& pod);
  void told(const NodeMessage& message);
  void step(TimePoint now);
  // Removed from the server without waiting for us: nothing of it may run on.
  void gone();
  // A power cut or our own end: SIGKILL to all of it at once, and not a word about it.
  void cut();

  // No process is left, and nothing more is to be said.
  bool is_done() const { return done_; }
  TimePoint next_deadline() const;

 private:
  void recover(const Json& status);
  // Address and volumes; false: not yet, or never.
  bool prepare(TimePoint now);
  bool admit();
  // The GPUs of the containers' limits; false: not yet, or never.
  bool take_gpus(TimePoint now);
  void fail(const std::string& reason, const std::string& message);
  void stop(Duration grace);
  void step_containers(TimePoint now);
  bool is_active() const;
  bool is_over() const;
  // False: the server is to be asked again later, at say_at_.
  bool report(TimePoint now);
  bool finish(TimePoint now);
  bool has_said(const ApiResponse& answer, TimePoint now);
  PodRecord record() const;
  template <class Visit>
  void each(Visit visit) {
    for (ContainerRun& run : init_) visit(run);
    for (ContainerRun& run : runs_) visit(run);
  }

  NodeServices& services_;
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
  TimePoint say_at_ = TimePoint::max();    // what the server refused for now is said again
  TimePoint deadline_ = TimePoint::max();  // activeDeadlineSeconds
  WallTime started_{};
  std::string failure_reason_;
  std::string failure_message_;
  PodConditions conditions_;
  Json reported_;
};

}  // namespace lockstep::local
