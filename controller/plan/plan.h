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
#include "controller/plan/network_policy_peers.h"
#include "controller/plan/pod_policy.h"
#include "controller/plan/pod_template.h"
#include "controller/plan/pod_text.h"
#include "controller/plan/pod_view.h"

namespace lockstep::plan {

// Reports that this process itself has received from one pod's agent. Nothing from before it began
// to listen counts.
struct AgentView {
  // The last report; nullptr if there is none. All plans share it.
  std::shared_ptr<const AgentState> state;
  TimePoint state_at{};    // when it arrived
  TimePoint last_heard{};  // last answer of any kind; initially when listening began
  std::string error{};     // why the last request failed; empty if it succeeded
  // The agent answers only that it does not know the job's token: it is alive but unusable. Its pod
  // is not recreated for that, since a new one would get the same token from the job's Secret.
  bool refuses_token = false;
  // Its last report is not kept: with it, the reports of the job's agents would take more memory
  // than one job may (AgentWatchOptions::report_bytes_max).
  bool reports_too_much = false;

  // True if the agent speaks a protocol version that is not served. Nothing else in its state is
  // understood then.
  bool has_unsupported_protocol() const { return state && !is_served(state->protocol); }
};

// The server refused the job's last pod.
struct PodRefusal {
  // QuotaExceeded, PodForbidden, PodInvalid, NameTaken, SecretRefused, PodCreateFailed
  std::string reason;
  std::string message;
  TimePoint retry_at{};  // no other pod is sent before then

  bool operator==(const PodRefusal&) const = default;
};

// The server's answer to a dry-run creation of a pod for the job's current spec.
struct PodCheck {
  std::string refusal;   // the server's message; empty if it accepts such pods or could not tell
  TimePoint retry_at{};  // if refused: by then, what the pod needs may exist

  bool operator==(const PodCheck&) const = default;
};

// The job's NetworkPolicy, and what is known about writing it. Without Limits::network_policies
// nothing is known and nothing is done.
struct NetworkPolicyView {
  const Json* object = nullptr;  // as the server has it; nullptr: none. Outlives the plan.
  // Why the last write had no effect, or why policies cannot be read. Empty: no trouble.
  std::string reason{};     // PolicyForbidden, PolicyInvalid, PolicyKindMissing, PolicyFailed
  std::string message{};    // if there is a reason
  TimePoint writable_at{};  // it is not written before then; max(): while policies cannot be read
};

// A snapshot of what is known about one job. It may be stale. The plan is correct all the same,
// because every action carries its preconditions (resourceVersion, UID, name, round).
struct Observed {
  TrainingJob job{};
  // Found in the stored document; if any, spec holds only suspend and managedBy.
  Problems problems{};
  // The result of spec_problems(), if it was computed before. It depends on what rarely changes,
  // and costs as much as the rest of a plan.
  std::optional<Problems> spec_problems{};
  std::vector<PodView> pods{};                // pods whose controller is this job's UID
  std::map<std::string, AgentView> agents{};  // by pod UID
  std::set<std::string> absent_pods{};  // names of pods that a read from the server did not find
  std::string job_token{};              // for the Secret
  std::optional<PodRefusal> refusal{};
  std::optional<PodCheck> pod_check{};  // for the job's current generation, from this process
  NetworkPolicyView network_policy{};
  WallTime wall_now{};               // for stored times
  bool may_write_progress = true;    // the budget allows a progress-only write now
  TimePoint progress_writable_at{};  // if not: when it will
  // Most Kubernetes nodes with agents are silent, so the controller's own network is the likely
  // cause.
  bool suspect_own_network = false;
  // Overrides a shorter Limits::agent_silence when agents are so numerous that each is polled less
  // often.
  std::optional<Duration> agent_silence{};
};

struct Limits {
  // Silence after which an agent's pod is given up.
  Duration agent_silence = std::chrono::seconds(15);
  // The same while suspect_own_network is set; four times agent_silence if that is longer.
  Duration agent_silence_if_suspect = std::chrono::seconds(300);
  // While suspect_own_network is set, how often to plan jobs whose agents would otherwise be given
  // up. No event reports that the suspicion is over.
  Duration suspicion_recheck = std::chrono::seconds(5);
  // A healthy agent was heard within this time, half of agent_silence. A rank on a machine that is
  // gone is thus not taken for one that hangs.
  Duration agent_healthy_within = std::chrono::milliseconds(7500);
  // An agent that this process has never heard is asked for at least so long before it is given up.
  Duration agent_asked_min = std::chrono::seconds(5);
  // How long an elastic job waits for a pod that is starting before it begins, or grows, without
  // it.
  Duration elastic_start_wait = std::chrono::seconds(60);
  // How long a rank that saves a checkpoint, validates or finishes may hold the others up before
  // the job is Stuck. If the rank hangs there, Stuck is reported before the round ends because of
  // it.
  Duration saving_grace = std::chrono::minutes(5);
  // How long to wait for the culprit while only workers that lost a peer (kExitPeerLost,
  // kExitPeerHung) have reported.
  Duration culprit_wait = std::chrono::seconds(5);
  // The same for a command, after a failure that another one may have caused.
  Duration command_culprit_wait = std::chrono::milliseconds(250);
  // Failures on different nodes closer together than this have no known order.
  Duration failure_order_resolution = std::chrono::milliseconds(50);
  // A command without progress reports that ran this long in a round does not count as a failed
  // attempt.
  Duration attempt_max = std::chrono::minutes(10);
  // A program that failed the same way at this number of starts, over this time, without any
  // progress ends the job (never_started.h).
  int64_t equal_starts = 3;
  Duration equal_starts_span = std::chrono::minutes(2);
  Duration backoff_first = std::chrono::seconds(1);  // before the second restart without progress
  Duration backoff_max = std::chrono::seconds(120);
  Duration exit_timeout =
      std::chrono::seconds(60);           // from the end of a job until its pods are deleted
  size_t log_tail_bytes = 1024;           // of a failed worker's log, in status
  std::string job_image = kDefaultImage;  // for jobs that name none
  // Its agent is injected into jobs' other images; empty: they contain it.
  std::string agent_image{};
  // Every agent is of this version, whatever the image, as on the local node.
  bool agents_are_current = false;
  bool scrape_annotations = false;  // on pods, for a Prometheus that uses prometheus.io/scrape
  PodPolicy pod_policy{};           // for jobs without pods
  // The controller makes NetworkPolicies for jobs that want one.
  std::optional<NetworkPolicyPeers> network_policies{};
};

// The agent to contact.
struct AgentTarget {
  std::string pod_uid;
  std::string pod_name;
  std::string ip;
  std::string node;           // the Kubernetes node
  bool is_signed = false;     // PodView::is_signed
  bool is_encrypted = false;  // PodView::is_encrypted
  // As its agent reports it.
  std::string job_uid{};
  int64_t node_index = 0;
  int64_t incarnation = 0;

  bool operator==(const AgentTarget&) const = default;
};

// Actions are plain data. Names are relative to the job's namespace.
struct CreateSecret {  // for the job's token; AlreadyExists is success
  std::string name;
  Json body;
};
// On AlreadyExists, reads the existing pod, which counts if the job owns it. Holds no body, because
// those of a large job would fill the controller's memory.
struct CreatePod {
  std::string name;
  int64_t index = 0;
  int64_t incarnation = 1;
  std::shared_ptr<const PodText> pods;  // those that the plan creates; never nullptr

  // Makes the Pod as it is POSTed.
  std::string text() const { return pods->of(index, incarnation); }
};
// Creates the job's NetworkPolicy or, if `body` has a resourceVersion, replaces it. If the server
// refuses, the plan goes on: pods do not need it.
struct WriteNetworkPolicy {
  std::string name;
  Json body;
};
struct DeleteNetworkPolicy {
  std::string name;
  std::string uid;  // a precondition
};
struct CheckPod {  // dry run: the server checks the pod as if it were created
  Json body;
  std::string template_digest;  // equal for pods that differ only in the job they belong to
  int64_t generation = 0;       // of the job; the answer holds only for it
};
struct ConfirmPod {  // reads the pod from the server: is it gone, or is the cache behind?
  std::string name;
};
struct DeletePod {
  std::string name;
  std::string uid;  // a precondition, so that a namesake is never deleted
  int64_t grace_seconds = 0;
};
struct DeleteJob {  // with everything it owns
  std::string uid;  // a precondition, like the version: the job has not changed meanwhile
  std::string resource_version;
};
struct PutAssignment {
  AgentTarget target;
  // The same for all nodes except for node_index. It contains the world, so one copy per node would
  // need memory quadratic in the number of nodes.
  std::shared_ptr<const Assignment> assignment;
  int64_t node_index = 0;
};
struct WriteStatus {  // the whole status; refused by the server unless resource_version is current
  TrainingJobStatus status;
  std::string resource_version;
  bool progress_only = false;  // counts against the progress budget
};
struct EmitEvent {  // only after everything before it has succeeded
  bool warning = false;
  std::string reason;
  std::string message;
};
using Action =
    std::variant<CreateSecret, CreatePod, ConfirmPod, DeletePod, DeleteJob, PutAssignment,
                 WriteStatus, EmitEvent, CheckPod, WriteNetworkPolicy, DeleteNetworkPolicy>;

struct Plan {
  std::string why;                      // one sentence
  std::vector<Action> actions;          // carried out in this order; an error ends the pass
  std::vector<AgentTarget> watch;       // agents to poll from now on; all others are dropped
  std::optional<TimePoint> requeue_at;  // when time alone would change the plan
};

// Returns what is wrong with the spec alone, each problem with its path.
Problems spec_problems(const TrainingJob& job);

// Returns what to do for one job now. Total and deterministic; no I/O, clocks or exceptions. A plan
// either records a decision in status (a new round, Failed, ...) and writes nothing else, or
// carries out what status says. Pods and agents thus follow only decisions that are recorded.
Plan plan(const Observed& observed, TimePoint now, const Limits& limits);

}  // namespace lockstep::plan
