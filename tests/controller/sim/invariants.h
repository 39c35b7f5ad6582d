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
// Of the condition; empty where there is none.
std::string reason_of(const Json& status, const char* condition);
bool is_finished(const Json& status);
// The failure that `after` records and `before` doesn't, or null.
const Json& new_failure(const Json& before, const Json& after);
// What the job's rules say of it; empty: nothing.
std::string action_of_rule(const Json& job, const Json& failure);

// What must hold after every event. I1 to I7 and I10 are those of operators' literature; the others
// are those of rounds (docs/design.md, "Rounds and members"). Each is checked by what can break it.
class Invariants {
 public:
  Invariants(Chance& chance, const FakeStore& store, const Nodes& nodes)
      : chance_(chance), store_(store), nodes_(nodes) {}

  // A request is about to change something.
  void check_write(const ApiRequest& request, const Json* stored, std::string_view sender);
  void job_changed(const FakeStore::Event& event);
  void told(const Assignment& assignment);
  void trained(const std::string& job_uid, const Assignment& assignment);
  // All ranks of the node have ended well in its round, or its agent says so.
  void ended(const Node& node);
  void failed(const std::string& job_uid) { ++causes_[job_uid]; }
  // The controller stood still: agents that it didn't ask may be taken for silent.
  void stalled() { ++stalls_; }
  // What the server said of a job's pod that it was to check.
  void checked(const std::string& job_uid, bool is_refused);
  void check_plan(const Observed& observed, const Plan& plan);

  bool has_been_a_job(const std::string& uid) const { return jobs_.contains(uid); }

 private:
  void check_leader(const ApiRequest& request, std::string_view sender);
  void check_event(const Json& event);
  void check_pod(const Json& pod);
  void check_delete(const ApiRequest& request, const Json& pod);
  void check_status(const Json& job, const Json& after);
  void check_members(const Json& job, const Json& after);
  void check_restarts(const Json& job, const Json& after);
  void check_failure(const Json& job, const Json& after);
  void check_hang(const Json& failure, const Node* node);
  void check_round(const Json& job, const Json& after);
  void check_images(const Json& job, const Json& after);
  void check_end(const Json& job, const Json& after);
  void check_obedience(const Json& job, const Json& after);
  void check_validity(const Json& job, const Json& after);
  // Policies that a job may set (invariants_of_policies.cc).
  void check_rules(const Json& job, const Json& after);
  void check_deadline(const Json& job, const Json& after);
  void check_given_up(const Json& job, const Json& after, const Node* node);
  void check_avoided(const Json& job, const Json& pod);
  void check_expiry(const ApiRequest& request, const Json& job);
  bool is_unheard(const Node& node) const;
  void check_counted(const Json& job, const Json& after, const Json& failure);
  void check_numbers(const Json& after);
  void check_silence(const Json& job, const Node* node);
  void check_cut_off(const Node& node);
  bool is_alone(const Node& node) const;
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
  std::set<std::string> jobs_;                                    // UIDs of all that ever were
  std::map<std::string, std::map<int64_t, std::string>> hashes_;  // by job UID: round -> hash
  // By job UID and round and hash: the indices of the nodes that have ended well.
  std::map<std::string, std::map<std::pair<int64_t, std::string>, std::set<int64_t>>> ended_;
  std::map<std::string, int64_t> trained_;  // by job UID: the newest round
  std::map<std::string, int64_t> causes_;   // by job UID: what may be counted as a restart
  // By job UID: of the failures that were counted, the rounds that they ended, and the index and
  // incarnation of pods that were lost before there was one.
  std::map<std::string, std::set<int64_t>> rounds_lost_;
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> pods_lost_;
  std::map<std::string, TimePoint> deleted_at_;  // by job UID: of those that a finalizer keeps
  std::map<std::string, TimePoint> refused_at_;  // by job UID: a pod that was checked
  std::optional<TimePoint> accepted_at_;         // the last pod that was checked and taken
  std::set<std::string> checked_;                // UIDs of jobs
  // By job UID: events since the last write of its status; a job has none before the first one.
  std::map<std::string, int64_t> events_;
  int64_t stalls_ = 0;
  std::map<std::string, TimePoint> formed_at_;  // by job UID: its newest round
};

}  // namespace lockstep::sim
