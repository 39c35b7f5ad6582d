#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/api/agent_messages.h"
#include "common/api/training_job.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_view.h"

namespace lockstep {

// What is known of one pod's agent by this process's own ears: nothing from before it began to
// listen counts.
struct AgentView {
  std::optional<AgentState> state;  // the last report
  TimePoint state_at{};             // when that came
  TimePoint last_heard{};           // last answer of any kind; at first: when listening began
  std::string error{};              // why the last question told nothing; empty: it did
  // It answers, but only that it doesn't know the job's token: alive and deaf to us. Its pod is not
  // made anew for that, since the next one would get the same token from the job's Secret.
  bool refuses_token = false;

  // It speaks a version of the protocol that isn't served, of which no more is understood.
  bool is_foreign() const { return state && !is_served(state->protocol); }
  bool operator==(const AgentView&) const = default;
};

// The server would not take the job's last pod.
struct PodRefusal {
  // QuotaExceeded, PodForbidden, PodInvalid, NameTaken, SecretRefused, PodCreateFailed
  std::string reason;
  std::string message;
  TimePoint retry_at{};  // until then no other one is sent

  bool operator==(const PodRefusal&) const = default;
};

// What the server said of a pod of the job's present spec, which it was asked to check and not to
// keep.
struct PodCheck {
  std::string refusal;   // its words; empty: it takes such pods, or couldn't tell
  TimePoint retry_at{};  // of one that was refused: what the pod needs may be there by then

  bool operator==(const PodCheck&) const = default;
};

// One job, as far as it is known at one moment. A snapshot: it may be stale, and the plan is right
// all the same, because every action carries what it presumes (resourceVersion, UID, name, round).
struct Observed {
  TrainingJob job{};
  Problems problems{};  // of reading the stored document; spec is then empty
  // What spec_problems() says, where it was asked before: it looks at what rarely changes, and
  // costs as much as the rest of a plan.
  std::optional<Problems> spec_problems{};
  std::vector<PodView> pods{};                // whose controller is this job's UID
  std::map<std::string, AgentView> agents{};  // by pod UID
  std::set<std::string> absent_pods{};        // names that a read from the server did not find
  std::string job_token{};                    // for the Secret
  std::optional<PodRefusal> refusal{};
  std::optional<PodCheck> pod_check{};  // of this generation of the job, by this process
  WallTime wall_now{};                  // for what is stored
  bool may_write_progress = true;       // the budget of writes of mere numbers allows one now
  TimePoint progress_writable_at{};     // else: when it will
  // Most Kubernetes nodes with agents are silent: rather the controller's own network.
  bool suspect_self = false;
  // Instead of a shorter one in Limits: there are so many agents that each is asked less often.
  std::optional<Duration> agent_silence{};
};

struct Limits {
  Duration agent_silence = std::chrono::seconds(15);  // until a silent agent's pod is given up
  // The same while suspect_self; or four times agent_silence, if that is longer.
  Duration agent_silence_all = std::chrono::seconds(300);
  // While suspect_self, jobs with agents that would be given up otherwise are looked at so often:
  // nothing else tells that it is over.
  Duration suspicion_look = std::chrono::seconds(5);
  // An agent that is well has been heard of within this time, half of agent_silence; a machine that
  // is gone is not taken for a rank that hangs.
  Duration agent_quiet = std::chrono::milliseconds(7500);
  // For so long a rank that saves a checkpoint, validates or finishes may hold the others up before
  // that is called Stuck; where it hangs there, that is told before the round ends for it.
  Duration saving_patience = std::chrono::minutes(5);
  // How long one waits for the guilty one once only messengers (kExitPeerLost, kExitPeerHung) have
  // spoken.
  Duration culprit_wait = std::chrono::seconds(5);
  // The same for a command, once one has failed that may have died of another; and how far apart
  // two failures on different nodes must be for their order to be known.
  Duration settle = std::chrono::milliseconds(250);
  Duration simultaneous = std::chrono::milliseconds(50);
  // A round of a command without progress of its own that ran this long was no failed attempt.
  Duration attempt_max = std::chrono::minutes(10);
  Duration backoff_first = std::chrono::seconds(1);  // before the second restart without progress
  Duration backoff_max = std::chrono::seconds(120);
  Duration exit_wait =
      std::chrono::seconds(60);           // from the end of a job until its pods are deleted
  size_t log_tail_bytes = 1024;           // of a failed worker, in status
  std::string job_image = kDefaultImage;  // of jobs that name none
  std::string agent_image{};  // whose agent is put into jobs' other images; empty: they have it
  bool scrape_annotations = false;  // of pods, for a Prometheus that goes by prometheus.io/scrape
};

// Whom to dial.
struct AgentTarget {
  std::string pod_uid;
  std::string pod_name;
  std::string ip;
  std::string node;  // the Kubernetes node

  bool operator==(const AgentTarget&) const = default;
};

// Actions are data. Names are relative to the job's namespace.
struct CreateSecret {  // of the job's token; AlreadyExists is success
  std::string name;
  Json body;
};
struct CreatePod {  // AlreadyExists: the pod that is there is read, and counts if it is the job's
  std::string name;
  Json body;
};
struct CheckPod {  // has the server check a pod as if it were created
  Json body;
  std::string likeness;    // the same for pods that differ in nothing but whose they are
  int64_t generation = 0;  // of the job, for which the answer holds
};
struct ConfirmPod {  // reads the pod from the server: is it gone, or is the cache behind?
  std::string name;
};
struct DeletePod {
  std::string name;
  std::string uid;  // a precondition: never a namesake
  int64_t grace_seconds = 0;
};
struct DeleteJob {  // with all that it owns
  std::string uid;  // a precondition, as is the version: nobody has changed it meanwhile
  std::string resource_version;
};
struct PutAssignment {
  AgentTarget target;
  // But for node_index the same for all nodes: with the world in it, each having one of its own
  // would grow with the square of their number.
  std::shared_ptr<const Assignment> assignment;
  int64_t node_index = 0;
};
struct WriteStatus {  // the whole status; refused by the server unless resource_version is current
  TrainingJobStatus status;
  std::string resource_version;
  bool progress_only = false;  // counts against the budget
};
struct EmitEvent {  // only after everything before it has succeeded
  bool warning = false;
  std::string reason;
  std::string message;
};
using Action = std::variant<CreateSecret, CreatePod, ConfirmPod, DeletePod, DeleteJob,
                            PutAssignment, WriteStatus, EmitEvent, CheckPod>;

struct Plan {
  std::string why;                 // one sentence
  std::vector<Action> actions;     // to be carried out in this order; an error ends the pass
  std::vector<AgentTarget> watch;  // whose state is to be polled from now on, and nobody else's
  std::optional<TimePoint> requeue_at;  // when time alone would change the plan
};

// What is wrong with the spec by itself, each by its path.
Problems spec_problems(const TrainingJob& job);

// What is to be done for one job now. Total, deterministic, free of I/O, clocks and exceptions.
// A plan either records a decision in status (a new round, Failed, ...), and then writes that
// alone, or carries out what status says; only then may the world have to follow.
Plan plan(const Observed& observed, TimePoint now, const Limits& limits);

}  // namespace lockstep
