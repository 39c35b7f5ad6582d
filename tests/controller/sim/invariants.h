#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/api/agent_messages.h"
#include "controller/plan/plan.h"
#include "tests/controller/sim/chance.h"
#include "tests/controller/sim/fake_store.h"
#include "tests/controller/sim/nodes.h"

namespace lockstep::sim {

bool is_set(const Json& status, const char* condition);
// Returns the condition, or null.
const Json& condition_in(const Json& status, std::string_view type);
// Returns the condition's reason; empty if there is no such condition.
std::string reason_of(const Json& status, const char* condition);
bool is_finished(const Json& status);
// Returns the node indices of the round that status describes, by place. A node has one rank.
std::vector<int64_t> round_nodes(const Json& status);
// Likewise, and those of servers that were added to the round since it began.
std::vector<int64_t> nodes_by_rank(const Json& status);
// Returns the failure that `after` records and `before` doesn't, or null.
const Json& new_failure(const Json& before, const Json& after);
// Returns the action of the job's first rule that matches the failure; empty if none does.
std::string action_of_rule(const Json& job, const Json& failure);

// Checks what must hold after every event. I1 to I7 and I10 are the usual invariants of operators;
// the others are those of rounds (docs/design.md, "Rounds and members"). An invariant is checked on
// each event that can break it.
class Invariants {
 public:
  Invariants(Chance& chance, const FakeStore& store, const Nodes& nodes)
      : chance_(chance), store_(store), nodes_(nodes) {}

  // Called before a request changes something.
  void check_write(const loop::ApiRequest& request, const Json* stored, std::string_view sender);
  void job_changed(const FakeStore::Event& event);
  void assignment_received(const Assignment& assignment);
  void trained(const std::string& job_uid, const Assignment& assignment);
  // Called when all ranks of the node have ended well in its round, or its agent says so.
  void ended(const Node& node);
  void failed(const std::string& job_uid) { ++causes_[job_uid]; }
  // Called when a controller freezes: it may take agents that it didn't poll for silent.
  void stalled() { ++stalls_; }
  // Called with the server's verdict on a dry-run pod of that job.
  void checked(const std::string& job_uid, bool is_refused);
  void check_plan(const plan::Observed& observed, const plan::Plan& plan);

  bool has_been_a_job(const std::string& uid) const { return jobs_.contains(uid); }

 private:
  void note_addresses(const plan::Observed& observed, const TrainingJobStatus& after);
  void check_leader(const loop::ApiRequest& request, std::string_view sender);
  void check_event(const Json& event);
  void check_pod(const Json& pod);
  void check_delete(const loop::ApiRequest& request, const Json& pod);
  void check_status(const Json& job, const Json& after);
  void check_members(const Json& job, const Json& after);
  void check_restarts(const Json& job, const Json& after);
  void check_failure(const Json& job, const Json& after);
  void check_hang(const Json& failure, const Node* node);
  void check_never_started(const Json& job, const Json& after);
  void check_drain(const Json& job, const Json& after);
  void check_round(const Json& job, const Json& after);
  void check_images(const Json& job, const Json& after);
  void check_places(const Json& job, const Json& failure);
  void count_nodes(const Json& before, const Json& after);
  void check_end(const Json& job, const Json& after);
  void check_obedience(const Json& job, const Json& after);
  void check_validity(const Json& job, const Json& after);
  // Policies that a job may set (invariants_of_policies.cc).
  void check_rules(const Json& job, const Json& after);
  void check_deadline(const Json& job, const Json& after);
  void check_given_up(const Json& job, const Json& after, const Node* node);
  void check_avoided(const Json& job, const Json& pod);
  void check_expiry(const loop::ApiRequest& request, const Json& job);
  bool is_unheard(const Node& node) const;
  // Returns whether a member of the job is lost without a word, or cannot be reached.
  bool has_unheard_member(const Json& job) const;
  void check_counted(const Json& job, const Json& after, const Json& failure);
  void check_numbers(const Json& after);
  void check_silence(const Json& job, const Node* node);
  // Slow ranks and bad losses (invariants_of_training.cc).
  const Node* node_of_rank(const Json& job, const Json& status, int64_t rank) const;
  const Node* named_as_slow(const Json& job, const Json& status) const;
  bool is_reported_by_all(const Json& job, const Json& status) const;
  void note_rules(const Json& job);
  void check_loss_rules(const Assignment& assignment);
  void check_stragglers(const Json& job, const Json& after);
  void check_named(const Json& job, const Json& after);
  void check_slow_in_time(const Json& job, const Json& after);
  void check_straggler(const Json& job, const Json& after, const Json& failure);
  void check_losses(const Json& job, const Json& after);
  void check_failed_by_loss(const Json& job, const Json& after);
  void check_skips(const Json& job, const Json& after);
  bool has_false_end() const;
  void check_lost_steps(const Json& job, const Json& after);
  // Servers with copies (invariants_of_servers.cc).
  void check_servers(const Json& job, const Json& after);
  // Whether the node's server is gone or joins, so that nobody waits for its end.
  static bool holds_nothing(const Json& job, const Json& status, int64_t node);
  // Whether the node is of a server that its round does not have yet.
  static bool is_yet_to_be_added(const Json& job, const Json& status, int64_t node);
  static bool follows_failed_process(const Json& job, const Json& before, const Json& failure);
  void check_new_workers(const Json& job, const Json& after, const ServersView& view);
  void check_holds(const Json& job, const Json& after, const ServersView& view, size_t server);
  void check_partition(const Node& node);
  bool is_alone(const Node& node) const;
  bool are_most_heard() const;
  void check_lateness(const Json& job, const Node& node);
  bool has_completed(const Json& job, const Json& after) const;
  bool is_to_be_replaced(const Json& job, const Json& after, int64_t index) const;
  bool waits_too_long(const Json& job, const Node& node) const;
  bool has_clock_jumped() const;
  Duration clock_error() const;
  void count_transitions(const Json& before, const Json& after);

  Chance& chance_;
  const FakeStore& store_;
  const Nodes& nodes_;
  std::set<std::string> jobs_;                                    // UIDs of all jobs ever seen
  std::map<std::string, std::map<int64_t, std::string>> hashes_;  // by job UID: round -> hash
  // By job UID: round -> node indices, by place.
  std::map<std::string, std::map<int64_t, std::vector<int64_t>>> round_nodes_;
  // By hash: the pods' addresses that the controller knew when it formed the round, by place.
  std::map<std::string, std::vector<std::string>> addresses_;
  // By job UID, round and hash: the indices of the nodes that have ended well.
  std::map<std::string, std::map<std::pair<int64_t, std::string>, std::set<int64_t>>> ended_;
  std::map<std::string, int64_t> trained_;  // by job UID: the newest round
  std::map<std::string, int64_t> causes_;   // by job UID: events that may count as a restart
  // By job UID, from counted failures: the rounds that they ended, and the index and incarnation of
  // pods lost before there was a round.
  std::map<std::string, std::set<int64_t>> rounds_lost_;
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> pods_lost_;
  // By job UID: pod UID and number of the process of servers without which a round went on.
  std::map<std::string, std::set<std::pair<std::string, int64_t>>> servers_lost_;
  std::map<std::string, TimePoint> deleted_at_;  // by job UID: jobs kept by a finalizer
  std::map<std::string, TimePoint> refused_at_;  // by job UID: when a pod check was refused
  std::optional<TimePoint> accepted_at_;         // when a pod check last succeeded
  std::set<std::string> checked_;                // UIDs of jobs whose pod was checked
  // By job UID: events since the last status write. A job has no entry before its first one.
  std::map<std::string, int64_t> events_;
  int64_t stalls_ = 0;
  std::map<std::string, std::vector<LossRules>> loss_rules_;  // by job UID, the newest last
  // By job UID: index and incarnation of pods that a rule has replaced because they were slow.
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> slow_replaced_;
  std::map<std::string, TimePoint> formed_at_;  // by job UID: when its newest round formed
};

}  // namespace lockstep::sim
