#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/api/agent_messages.h"
#include "common/api/servers_view.h"
#include "controller/loop/agent_client.h"
#include "controller/plan/plan.h"
#include "tests/controller/sim/chance.h"
#include "tests/controller/sim/fake_store.h"

namespace lockstep::sim {

// How long the rank of a node computes in a step, compared with its peers.
struct Slowness {
  double factor = 1;  // as long as usual, until then
  TimePoint until{};
  // In the node's round, as the agent reports it.
  double busy_seconds = 0;
  int64_t steps = 0;
  bool was_slow = false;                  // in some step
  std::optional<TimePoint> slow_since{};  // enough to be named
  std::optional<TimePoint> fast_since{};  // enough to be named no more
};

// A process of a server, or of a worker next to one.
struct Served {
  int64_t process = 0;       // grows with each start
  ServersView view{};        // that it follows
  std::set<size_t> holds{};  // places (server_places.h) of which it has everything
  std::set<size_t> given{};  // those that it has given to the one that joins, in this view
};

// The pod of one node of a job, from its creation to its removal, with its simulated kubelet and
// agent.
struct Node {
  static inline const Duration kUnheard = plan::Limits{}.agent_silence * 2 / 3;

  std::string key;  // of the pod: namespace/name
  std::string uid;  // of the pod
  std::string job_uid;
  std::string job_name;
  int64_t index = 0;
  int64_t incarnation = 0;
  bool is_live = true;           // neither ended nor being deleted
  bool is_stopping = false;      // its pod is being deleted, and its agent still answers
  bool is_silent = false;        // its machine is lost: the pod stays as it is
  bool has_tried_start = false;  // its start may be delayed only at the first try
  TimePoint created_at{};
  TimePoint started_at{};
  TimePoint heard_at{};        // when an answer of its agent last got through
  TimePoint heard_again_at{};  // the first answer after a silence longer than kUnheard
  std::string machine{};
  std::string image{};  // of the container `node`
  std::string ip{};     // empty: not started yet
  std::string token{};  // from its Secret, read when it started
  AgentState state{};
  std::optional<AgentState> old_report{};  // of an earlier round
  Assignment assignment{};
  TimePoint assigned_at{};
  TimePoint failed_at{};
  std::optional<TimePoint> hung_at{};  // its worker hangs, or its machine is off the network
  TimePoint lost_at{};                 // when it fell silent
  TimePoint marked_at{};               // when it was marked for deletion
  Slowness slow{};
  Served served{};

  bool answers() const { return (is_live || is_stopping) && !is_silent && !ip.empty(); }
  bool is_waited_for() const { return is_live && hung_at; }
  bool trains() const {
    return state.phase == "Running" && assignment.train && !hung_at &&
           state.workers.front().phase == WorkerPhase::kTraining;
  }
};

bool has_copies(const Assignment& assignment);
bool has_servers(const Assignment& assignment);
// Returns the incarnation that the assignment expects of its node, which is in its round.
int64_t incarnation_of(const Assignment& assignment);
bool has_places(const Assignment& assignment);
bool has_moved_server(const Assignment& assignment);
bool has_new_worker(const Assignment& assignment);
// Returns the places that the server holds in this view.
std::set<size_t> places_held(const ServersView& view, size_t server, int64_t copies);

// Returns a command whose rank 0 ends after `steps` steps and each further rank two steps later.
// With `by_rank_zero`, rank 0 alone ends.
std::vector<std::string> command_of(int64_t steps, bool by_rank_zero);

// Exit codes of a worker that ends on its own (Fault::kWorkerExit) and of one that is killed.
inline constexpr int kExitOfRules = 42;
inline constexpr int kExitKilled = 137;

// Returns the names of the machines that the pod must avoid.
std::set<std::string> avoided_by(const Json& pod);

// Kubelets, agents and workers of all pods. The workers of a round form once all agents have the
// same assignment, then make a step every two seconds. If a worker is lost, the others fail soon
// after; if one hangs, they fail after waiting for it. If one is stopped with its pod and the job
// has a folder for checkpoints, all save the same step and leave. The ranks of a command
// (command_of()) do none of these, and don't end together; if a rank is lost, the others fail.
// Agents report how long the ranks of the built-in loop compute in a step. If the loss of a step is
// bad, all ranks of the round do what the rules say that rank 0 was assigned (losses.cc).
class Nodes {
 public:
  static constexpr Duration kFailureTick = std::chrono::milliseconds(500);

  using Answer = std::function<void(Result<AgentState>)>;

  Nodes(Chance& chance, FakeStore& store);

  // Every other image has agents that speak only this version.
  int64_t oldest_protocol = kProtocolOldest;

  // Callbacks, in this order: an agent received an assignment; a round's workers made a step; a
  // node's ranks ended well in its round, or its agent says so; something happened that may count
  // as a restart.
  std::function<void(const Assignment&)> on_assignment;
  std::function<void(const std::string& job_uid, const Assignment&)> on_trained;
  std::function<void(const Node&)> on_ended;
  std::function<void(const std::string& job_uid)> on_failure;

  // Handles the store's events of pods.
  void on_pod(const FakeStore::Event& event);

  // An agent's interface. Results have not travelled yet: Connection delays and loses them. A
  // caller with the wrong token gets kUnavailable.
  Result<AgentState> put(const loop::AgentAddress& agent, const Assignment& assignment);
  void poll(const loop::AgentAddress& agent, int64_t since, TimePoint until, Answer answer);
  // Records that this answer of that agent got through. One about another pod says nothing of it.
  void heard(const loop::AgentAddress& agent, const AgentState& answer);
  // Returns the agent's last report of an earlier round, if any.
  std::optional<AgentState> old_report(const loop::AgentAddress& agent);

  // Causes one of the failures of nodes: kWorkerKilled, or one that ends the pod.
  void cause(Fault fault, const std::string& pod_key);

  // Returns `state`, or a false report in its place, as the controller's client would parse it.
  Result<AgentState> reported_state(const loop::AgentAddress& agent, AgentState state);
  // Returns whether a worker of that node failed in that round.
  bool has_failed(const std::string& job_uid, int64_t index, int64_t incarnation,
                  int64_t round) const;
  // Returns whether that agent ever reported a failure that did not happen, or an assignment that
  // is not its own.
  bool sent_false_report(const std::string& job_uid, int64_t index, int64_t incarnation) const;

  const std::map<std::string, std::unique_ptr<Node>>& all() const { return nodes_; }
  const Node* find(const std::string& job_uid, int64_t index, int64_t incarnation) const;
  // Returns whether all ranks of the job's round saved its last step. If no agent ever began that
  // round, they are those of the newest one that some agent began.
  bool has_saved(const std::string& job_uid, int64_t round) const {
    const auto begun = newest_begun_.find(job_uid);
    return begun != newest_begun_.end() &&
           saved_.contains({job_uid, std::min(round, begun->second)});
  }
  // Returns whether the rank of that node ended its round because of a loss.
  bool failed_by_loss(const std::string& job_uid, int64_t index, int64_t incarnation,
                      int64_t round) const {
    return failed_by_loss_.contains({{job_uid, index, incarnation}, round});
  }
  // A round of the built-in loop: where it began, and what the job's state lacks.
  struct Training {
    int64_t resumed_step = -1;
    int64_t skips = 0;
    std::string skip{};  // the newest one of this round
  };
  // Returns nullptr if the round has made no step.
  const Training* training_of(const std::string& hash) const {
    const auto found = trainings_.find(hash);
    return found == trainings_.end() ? nullptr : &found->second;
  }
  // Returns how often the job's ranks ever went on without batches, also in states that were lost.
  int64_t skips_of(const std::string& job_uid) const {
    const auto found = skips_.find(job_uid);
    return found == skips_.end() ? 0 : found->second;
  }
  size_t live() const;
  int64_t failures_caused() const { return failures_caused_; }
  // Returns when machines were lost.
  const std::vector<TimePoint>& losses() const { return losses_; }

 private:
  using Round = std::vector<Node*>;  // nodes with the same assignment hash
  using Waiter = std::shared_ptr<Answer>;

  void start(const std::string& uid);
  bool delay_start(Node& node);
  std::string machine_for(const Json& pod) const;
  void end(Node& node, const char* reason, int exit_code);
  void end_beside_sidecar(Node& node);
  void leave(const std::string& uid);
  void stop_with_round(Node& node);
  std::string take_ip();
  void free_ip(const Node& node);
  Node* at(const loop::AgentAddress& agent);
  AgentState report(const Node& node) const;
  void carry_out(Node& node, const Assignment& assignment);
  void changed(Node& node);
  void answer_waiters(const Node& node);

  // Makes sure that advance_job() runs for the job within `delay`.
  void schedule_advance(const std::string& job_uid, Duration delay);
  void advance_job(const std::string& job_uid);
  bool proceed(const Round& round);
  void train(const Round& round);
  void stop(const Round& round);
  void finish_saving(const std::string& uid, const std::string& hash);
  void leave_saved(const std::string& uid, const std::string& hash);
  bool may_leave(const Node& node) const;
  bool is_whole(const Round& round) const;
  void break_up(const Round& round);
  void wait_for_hung(const Round& round);
  bool can_hang(const Node& node) const;
  void fail(Node& node, int exit_code, const char* reason);
  // Servers, and workers that are started anew next to them (server_copies.cc).
  bool begin_serving(Node& node);
  void take_view(Node& node, const Assignment& assignment);
  void serve_anew(Node& node, const ServersView& view);
  Node* serving(const std::string& uid, int64_t process);
  void follow_later(const Node& node, const ServersView& view);
  void follow(Node& node, const ServersView& view);
  void check_follower(const Node& node, size_t server, const ServersView& before);
  void fill_later(const Node& node, size_t place);
  void fill(Node& node, size_t place);
  static void end_after_leaving(Node& node);
  static std::set<int64_t> spared_ranks(const Round& round);
  static int64_t ranks_of(const Round& round);
  bool waits_for_view(const Round& round);
  bool is_superseded(const Node& node) const;
  // Steps of the built-in loop (losses.cc, slow_ranks.cc).
  enum class Loss { kGood, kNotFinite, kSpike };
  Loss loss_of(const std::string& job_uid, int64_t step);
  bool go_on_without(Training& training, const std::string& job_uid, std::string_view action,
                     int64_t step);
  bool ends_by_loss(const Round& round, int64_t step);
  void fail_by_loss(const Round& round, Loss loss);
  int64_t newest_checkpoint(const std::string& job_uid) const;
  void resume(const Node& node, int64_t step);
  void save(const Node& node, int64_t step);
  void report_storage(Node& node) const;
  void note_speeds(const Round& all);
  Duration seconds_of_step(const std::string& job_uid) const;

  std::optional<AgentState> state_of_another_job(const Node& node) const;

  void cause_failures();
  void cause_failure(Node& node);
  void lose(Node& node, Fault fault);
  void count_failure(const std::string& job_uid);

  Chance& chance_;
  FakeStore& store_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;  // by pod UID
  std::map<std::string, Node*> by_ip_;
  std::map<std::string, std::vector<Waiter>> waiters_;  // by pod UID
  std::map<std::string, std::optional<loop::Timers::Id>>
      advance_timers_;  // by job UID: the pending advance_job()
  // By job UID: step, and how often the state in it went on without batches.
  std::map<std::string, std::map<int64_t, int64_t>> checkpoints_;
  std::map<std::string, std::set<int64_t>> written_;  // by hash: ranks that saved
  std::map<std::string, std::set<int64_t>> leaving_;  // likewise, once no rank is waited for
  std::set<std::pair<std::string, int64_t>> saved_;   // job UID and round, of which all did
  std::map<std::string, int64_t> newest_begun_;       // by job UID: of all rounds
  std::map<std::string, TimePoint> missed_since_;     // by hash: when a server's pod was missing
  int64_t ips_ = 0;
  std::vector<std::string> free_ips_;
  int64_t starts_ = 0;
  std::string bad_machine_ = "machine-1";
  using Member = std::tuple<std::string, int64_t, int64_t>;  // job UID, index, incarnation
  std::set<Member> false_reporters_;
  std::map<Member, std::set<int64_t>> failed_;  // rounds in which its worker failed
  std::set<std::pair<Member, int64_t>> failed_by_loss_;
  std::map<std::string, std::map<int64_t, Loss>> step_losses_;    // by job UID: of steps
  std::map<std::string, Training> trainings_;                     // by hash
  std::map<std::string, int64_t> skips_;                          // by job UID
  std::map<std::pair<std::string, int64_t>, std::string> views_;  // by hash and number
  int64_t failures_caused_ = 0;
  std::vector<TimePoint> losses_;
};

}  // namespace lockstep::sim
