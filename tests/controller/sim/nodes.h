#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/api/agent_messages.h"
#include "controller/loop/agent_client.h"
#include "controller/plan/plan.h"
#include "tests/controller/sim/chance.h"
#include "tests/controller/sim/fake_store.h"

namespace lockstep::sim {

// The pod of one job's node, from its creation until it is gone: what its kubelet and its agent do.
struct Node {
  static inline const Duration kUnheard = Limits{}.agent_silence * 2 / 3;

  std::string key;  // of the pod: namespace/name
  std::string uid;  // of the pod
  std::string job_uid;
  std::string job_name;
  int64_t index = 0;
  int64_t incarnation = 0;
  bool is_live = true;      // neither ended nor being deleted
  bool is_silent = false;   // its machine is lost: the pod stays as it is
  bool is_held_up = false;  // it was, or is, kept from starting
  TimePoint created_at{};
  TimePoint started_at{};
  TimePoint heard_at{};        // an answer of its agent got through
  TimePoint heard_again_at{};  // after nobody had for so long that it may be taken for silent
  std::string machine{};
  std::string image{};  // of the container `node`
  std::string ip{};     // empty: not started yet
  std::string token{};  // of its Secret, when it started
  AgentState state{};
  std::optional<AgentState> old_report{};  // of an earlier round
  Assignment assignment{};
  TimePoint assigned_at{};
  TimePoint failed_at{};
  std::optional<TimePoint> hung_at{};  // its worker stands still, or its machine is off the network
  TimePoint lost_at{};                 // since then silent
  TimePoint marked_at{};               // for deletion

  bool answers() const { return is_live && !is_silent && !ip.empty(); }
  bool is_waited_for() const { return is_live && hung_at; }
  bool trains() const {
    return state.phase == "Running" && assignment.train && !hung_at &&
           state.workers.front().phase == WorkerPhase::kTraining;
  }
};

// The command whose ranks end after `steps` and a bit each, rank 0 first; or, `by_rank_zero`, whose
// rank 0 ends then and the others never.
std::vector<std::string> command_of(int64_t steps, bool by_rank_zero);

// Of a worker that ends by itself (Fault::kWorkerExit), and of one that is killed.
inline constexpr int kExitOfRules = 42;
inline constexpr int kExitKilled = 137;

// The names of the machines that a pod is kept from.
std::set<std::string> avoided_by(const Json& pod);

// Kubelets, agents and workers of all pods. Workers of one round form once all of them were told
// the same, then make a step every two seconds; if one is missing, the others leave: at once, or
// when they have waited for one that hangs. A command (command_of()) does the same, but its ranks
// don't end together, and none of them hangs.
class Nodes {
 public:
  static constexpr Duration kFailureTick = std::chrono::milliseconds(500);

  using Answer = std::function<void(Result<AgentState>)>;

  Nodes(Chance& chance, FakeStore& store);

  // An agent was told to carry out a round; one trained in it; the ranks of a node have ended well
  // in it, or its agent says so; a failure that may be counted as a restart.
  std::function<void(const Assignment&)> on_told;
  std::function<void(const std::string& job_uid, const Assignment&)> on_trained;
  std::function<void(const Node&)> on_ended;
  std::function<void(const std::string& job_uid)> on_failure;

  // The store's events of pods.
  void on_pod(const FakeStore::Event& event);

  // An agent's interface; what it answers is not on its way yet. Who has another token than its own
  // hears nothing.
  Result<AgentState> put(const AgentAddress& agent, const Assignment& assignment);
  void poll(const AgentAddress& agent, int64_t since, TimePoint until, Answer answer);
  // What that agent answers gets through.
  void heard(const AgentAddress& agent);
  // What that agent said in an earlier round.
  std::optional<AgentState> old_report(const AgentAddress& agent);

  // What that agent says when it is asked, which need not be so; as the controller's client reads
  // it.
  Result<AgentState> tell(const AgentAddress& agent, AgentState state);
  // Whether a worker of that node failed in that round.
  bool has_failed(const std::string& job_uid, int64_t index, int64_t incarnation,
                  int64_t round) const;
  // Whether that agent has ever told of a failure that wasn't, or of another assignment than its
  // own.
  bool has_lied(const std::string& job_uid, int64_t index, int64_t incarnation) const;

  const std::map<std::string, std::unique_ptr<Node>>& all() const { return nodes_; }
  const Node* find(const std::string& job_uid, int64_t index, int64_t incarnation) const;
  size_t live() const;
  int64_t failures_caused() const { return failures_caused_; }
  // When machines were lost.
  const std::vector<TimePoint>& losses() const { return losses_; }

 private:
  using Round = std::vector<Node*>;  // nodes that were told the same
  using Waiter = std::shared_ptr<Answer>;

  void start(const std::string& uid);
  bool hold_up(Node& node);
  std::string machine_for(const Json& pod) const;
  void end(Node& node, const char* reason, int exit_code);
  void end_beside_sidecar(Node& node);
  void leave(const std::string& uid);
  std::string take_ip();
  void free_ip(const Node& node);
  Node* at(const AgentAddress& agent);
  AgentState report(const Node& node) const;
  void carry_out(Node& node, const Assignment& assignment);
  void changed(Node& node);
  void answer_waiters(const Node& node);

  // Looks at the job's workers within that time.
  void follow(const std::string& job_uid, Duration delay);
  void look_at(const std::string& job_uid);
  bool proceed(const Round& round);
  void train(const Round& round);
  void break_up(const Round& round);
  void wait_for_hung(const Round& round);
  bool can_hang(const Node& node) const;
  void fail(Node& node, int exit_code, const char* reason);

  std::optional<AgentState> state_of_another_job(const Node& node) const;

  void cause_failures();
  void cause_failure(Node& node);
  void lose(Node& node, Fault fault);
  void count_failure(const std::string& job_uid);

  Chance& chance_;
  FakeStore& store_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;  // by pod UID
  std::map<std::string, Node*> by_ip_;
  std::map<std::string, std::vector<Waiter>> waiters_;      // by pod UID
  std::map<std::string, std::optional<Timers::Id>> looks_;  // by job UID: when one is due
  std::map<std::string, int64_t> checkpoints_;              // by job UID: step
  int64_t ips_ = 0;
  std::vector<std::string> free_ips_;
  int64_t starts_ = 0;
  std::string bad_machine_ = "machine-1";
  using Member = std::tuple<std::string, int64_t, int64_t>;  // job UID, index, incarnation
  std::set<Member> liars_;
  std::map<Member, std::set<int64_t>> failed_;  // the rounds in which its worker did
  int64_t failures_caused_ = 0;
  std::vector<TimePoint> losses_;
};

}  // namespace lockstep::sim
