#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "local/node/environment.h"
#include "local/node/node_context.h"
#include "local/node/pod_plan.h"
#include "local/node/pod_status.h"
#include "local/node/probes.h"

namespace lockstep::local {

// State shared by the containers of a pod.
struct PodContext {
  Json object;  // newest version from the server
  PodPlan plan;
  PodFacts facts;
  std::vector<int> cpus;
  std::map<std::string, Gpus> gpus;  // by container; only those with a GPU limit
  std::string folder;
  ObjectReader read;
  EventRecorder::Source source;

  EventRecorder::About about(const std::string& container = "") const;
};

// One container across its restarts: start, hooks, probes, back-off, stop, and their record. Used
// on the node's thread only.
class ContainerRun {
 public:
  // `context`, `pod` and `plan` outlive the object. An init container (`is_init`) is not restarted
  // after a success, even under restartPolicy Always.
  ContainerRun(NodeContext& context, const PodContext& pod, const ContainerPlan& plan,
               bool is_init);
  ContainerRun(ContainerRun&&) = default;

  // Restores the status of a container that ran before the machine lost power.
  void recover(const Json& status);

  void step(TimePoint now, bool may_start);
  // Returns false if the message is not for this container.
  bool on_message(const NodeMessage& message);
  // Stops the container for good: preStop hook and SIGTERM, then SIGKILL after `grace`. If called
  // again, the shortest grace counts.
  void stop(Duration grace);
  // A power cut: sends SIGKILL to all its processes immediately, without an event.
  void kill_now();

  const ContainerRecord& record() const { return record_; }
  // True while one of its processes exists or may exist.
  bool is_active() const { return stage_ != Stage::kIdle && stage_ != Stage::kEnded; }
  // True once it has ended and won't be restarted.
  bool is_over() const { return stage_ == Stage::kEnded; }
  bool has_succeeded() const { return is_over() && record_.end && record_.end->exit_code == 0; }
  // Why a local node can't run it; empty if it can.
  const std::string& refusal() const { return refusal_; }
  TimePoint next_deadline() const;

 private:
  enum class Stage { kIdle, kStarting, kPostStart, kRunning, kStopping, kSweeping, kEnded };
  enum class Purpose { kPostStart, kPreStop, kProbe };
  struct Hook {
    uint64_t run = 0;
    Purpose purpose = Purpose::kProbe;
    pid_t pid = -1;
    TimePoint deadline{};
    bool timed_out = false;
  };

  void start(TimePoint now);
  Result<Environment> environment() const;
  void wait_with(const std::string& reason, const std::string& message);
  void started(const Result<pid_t>& pid);
  void enter_running();
  void exited(const ExitStatus& status);
  void ended(EndFacts end);
  bool wants_restart(int exit_code) const;
  void back_off(TimePoint now);
  void begin_stop();
  void kill_for_restart(const std::string& why, std::optional<int64_t> grace_seconds);
  uint64_t launch(const std::vector<std::string>& command, Purpose purpose, TimePoint deadline);
  uint64_t launch_probe(const ProbePlan& plan);
  bool on_hook_message(const NodeMessage& message);
  void hook_done(Purpose purpose, uint64_t run, bool ok, const std::string& text);
  void probe_result(uint64_t run, bool ok, const std::string& text);
  SpawnSpec spawn_spec(const std::vector<std::string>& command) const;
  std::string marker() const;
  std::string termination_message(int exit_code) const;
  void post_on_exit(SpawnSpec spec, uint64_t run);

  NodeContext* context_;
  const PodContext* pod_;
  const ContainerPlan* plan_;
  bool is_init_;
  RestartPolicy policy_;
  ContainerRecord record_;
  Stage stage_ = Stage::kIdle;
  std::string refusal_;
  uint64_t run_ = 0;  // number of the current instance
  pid_t pid_ = -1;
  std::string root_;
  Environment environment_;
  std::string log_file_;
  std::optional<ExitStatus> exit_;  // kept until the start is reported and the sweep is done
  bool stopping_ = false;           // for good
  bool is_silent_ = false;          // after kill_now()
  bool sigterm_sent_ = false;       // or is not needed, after kill_now()
  TimePoint kill_at_ = TimePoint::max();
  TimePoint start_at_{};
  TimePoint running_since_{};
  int64_t failures_in_a_row_ = 0;
  Probes probes_;
  std::vector<Hook> hooks_;
};

}  // namespace lockstep::local
