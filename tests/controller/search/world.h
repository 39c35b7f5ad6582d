#pragma once

#include <climits>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/api/agent_messages.h"
#include "common/api/training_job.h"
#include "common/base/clock.h"
#include "controller/plan/plan.h"
#include "tests/controller/search/process.h"
#include "tests/controller/sim/fake_store.h"
#include "tests/controller/sim/simulation.h"

namespace lockstep::search {

inline constexpr char kJobKey[] = "default/job";

// The kubelet, the agent and the worker of a pod that runs. It is forgotten when its pod ends or is
// being deleted.
struct Agent {
  std::string pod;  // namespace/name
  std::string ip;
  int64_t index = 0;
  int64_t incarnation = 0;
  bool is_silent = false;  // its machine is lost
  AgentState state{};
  std::shared_ptr<const Assignment> assignment{};
  std::optional<AgentState> old{};  // its last report of an earlier round
};

// The events of one round, for the properties.
struct RoundRecord {
  std::string hash{};
  std::set<int64_t> ended{};                       // nodes whose rank ended well
  std::set<std::pair<int64_t, int64_t>> failed{};  // index and incarnation of failed ranks
  bool is_counted = false;                         // its end was counted as a restart

  bool operator==(const RoundRecord&) const = default;
};

struct History {
  std::map<int64_t, RoundRecord> rounds{};
  std::set<std::pair<int64_t, int64_t>> pods_counted{};  // lost before a round formed
  int64_t trained = 0;                                   // the newest round that trained
  int64_t causes = 0;                                    // events that may count as a restart
  bool was_suspended = false;
};

// A job of two nodes in a cluster with one controller, between two moves (moves.h). A value: copies
// are independent. Only apply() changes it.
//
// Some things are left out, and no behaviour is lost by that:
// - Events for people and writes of progress alone. No policy and no invariant here reads them, and
//   no plan waits for them (Executor).
// - The lease. A replica that may have lost it sends nothing (LeaderGuardedClient), so all that is
//   left of an old leader are requests on their way. A crash leaves the same: `strays`, which may
//   arrive at any time or never. leader_test.cc and the simulation cover the lease itself.
// - Polls of agents in flight. A report that arrives late means the same as one that arrived in
//   time at a controller that plans late, which any order of moves includes. An agent's report of
//   an earlier round that arrives after a newer one is a fault of its own.
// - A timer that fires while a plan is carried out. It only queues the job and lets time pass, as
//   it does right after the plan's end, when another timer is set anyway.
// - A watch of the job that has lost its place (410). The list that follows brings the newest
//   version, as the events that it replaces would.
// - Requests of a dead controller that can never have an effect any more.
// - Retries' exact delays. A failed plan is tried again after kRetryDelay.
struct World {
  sim::FakeStore store{};
  DocumentPtr job{};                          // nullptr: deleted
  std::map<std::string, DocumentPtr> pods{};  // by namespace/name
  std::vector<int64_t> job_versions{};        // of all changes so far
  std::vector<int64_t> pod_versions{};
  std::map<std::string, int64_t> births{};  // objects that were created under a name
  std::map<std::string, Agent> agents{};    // by pod UID
  std::set<std::string> lost_pods{};        // UIDs of pods on machines that are lost
  Process process{};
  std::vector<std::shared_ptr<const Request>> strays{};  // sent by controllers that are dead
  TimePoint now{};
  int faults_left = 0;
  int edits_left = 0;   // of these faults, by users
  int others_left = 0;  // of these faults, by anything else
  History history{};
  std::string violation{};  // the first broken invariant
  const sim::Mutation* mutation = nullptr;

  WallTime wall_now() const;
  void violate(const std::string& what) {
    if (violation.empty()) violation = what;
  }
  // Runs `change`, which may change the store, and takes note of what it changed.
  template <class Change>
  void change_store(Change change) {
    watch_store();
    change();
    unwatch_store();
  }
  // Returns whether users may still suspend, scale or delete the job.
  bool may_be_edited() const { return faults_left > 0 && edits_left > 0; }
  // Returns whether another fault may still happen.
  bool may_fail() const { return faults_left > 0 && others_left > 0; }
  bool has_pod(const std::string& uid) const;
  const Agent* agent_at(const std::string& ip) const;
  // Returns whether the job has ended, none of its pods is live and the controller rests. A deleted
  // job has ended when its pods are gone, but for those on lost machines, which nobody can stop.
  bool is_at_goal() const;
  // Equal only for worlds that behave alike. Points in time, the numbers of versions and of UIDs,
  // and what influences neither a later move nor a property don't count (world_digest.cc).
  uint64_t digest() const;
  // Counts all changes so far. With more faults than none, the number of worlds that differ in it
  // has no bound.
  uint64_t exact_digest() const;

 private:
  void watch_store();
  void unwatch_store();
  void changed(loop::ResourceType type, const sim::FakeStore::Event& event);
  void job_changed(const sim::FakeStore::Event& event, const DocumentPtr& document);
  void pod_changed(const DocumentPtr& document, bool is_deleted);
};

struct Bounds {
  int faults = 0;
  int edits = INT_MAX;   // of these faults, by users
  int others = INT_MAX;  // of these faults, by anything else
};
// Returns the world in which the job has just been created and the controller starts.
World first_world(const sim::Mutation& mutation, Bounds bounds);

}  // namespace lockstep::search
