#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "local/node/node_match.h"

namespace lockstep::local {

// The scheduler's decision about one pod.
struct Placement {
  std::string namespace_;
  std::string name;
  std::string uid;
  std::string node;     // bind it to this machine; empty: it can't be placed now
  std::string message;  // if so, why, in kube-scheduler's words
};

// Known facts about an owner of pods.
struct OwnerFacts {
  std::string created;  // RFC 3339
  int64_t pods = 0;     // how many pods it runs at a time; 0: unknown
};

struct SchedulerOptions {
  // How long an owner's pods wait for the rest of its pods to be created.
  Duration gather = std::chrono::seconds(2);
  // False: every machine accepts every pod, whatever it requests or selects.
  bool enforce_resources = true;
};

// A minimal scheduler: decides which pending pod goes to which machine.
// - Pods of one controller are placed together or not at all.
// - Oldest owner first; machines that it waits for are not given to younger owners, so that two
//   half-placed jobs can't wait for each other forever.
// - Pods are spread: to the machine with the fewest pods of their owner, then with the fewest pods.
// State only, no I/O; not thread-safe.
class Scheduler {
 public:
  using OwnerLookup =
      std::function<OwnerFacts(const std::string& namespace_, const Json& reference)>;

  Scheduler(OwnerLookup lookup, const SchedulerOptions& options)
      : lookup_(std::move(lookup)), options_(options) {}

  void node_changed(const Json& node);
  void node_gone(const std::string& name);
  void pod_changed(const Json& pod, TimePoint now);
  void pod_gone(const std::string& uid);
  // A placement failed: the pod is pending again.
  void not_bound(const std::string& uid, TimePoint now);

  // Returns the placements to carry out now and assumes that they succeed. A pod that can't be
  // placed is reported again only if it was retried and the message changed.
  std::vector<Placement> place(TimePoint now);
  TimePoint next_deadline() const;

 private:
  struct Use {
    Resources resources;
    int64_t pods = 0;
  };
  using Uses = std::map<std::string, Use>;            // by machine
  using GroupKey = std::pair<std::string, uint64_t>;  // owner's creation time, order of arrival
  struct Pod {
    std::string namespace_;
    std::string name;
    std::string node;  // empty: pending
    bool ended = false;
    Json spec;  // of a pending pod: the parts that decide where it may run
    Resources requests;
    GroupKey group;
    std::string last_message;
  };
  struct Group {
    std::string owner_uid;
    int64_t wanted = 0;
    std::set<std::string> pods;     // UIDs
    std::set<std::string> waiting;  // the pending ones
    TimePoint since{};              // arrival of the last pod
    bool never_fits = false;  // not even on empty machines; reset when machines or its pods change
  };

  Pod& add_pod(const Json& pod, const std::string& uid, TimePoint now);
  GroupKey group_of(const Json& pod, const std::string& uid);
  static void count(Use& use, const Pod& pod, int sign);
  void occupy(const Pod& pod, int sign);
  void wait_for_place(Pod& pod, const std::string& uid, TimePoint now);
  std::string why_unschedulable(const Pod& pod, const NodeView& node, const Uses& uses) const;
  std::optional<std::string> best_machine(const Pod& pod, const Uses& uses,
                                          const std::map<std::string, int64_t>& of_group,
                                          const std::set<std::string>& closed) const;
  bool has_free_machine() const;
  // Returns the machine of each waiting pod; nullopt if there is no room for all of them.
  std::optional<std::map<std::string, std::string>> fit(const Group& group, Uses uses,
                                                        const std::set<std::string>& closed) const;
  void reserve(Group& group);
  void place_group(Group& group, const std::map<std::string, std::string>& machines,
                   std::vector<Placement>& placements);
  void report_unschedulable(const std::string& uid, std::vector<Placement>& placements);
  std::string explanation(const Pod& pod) const;

  OwnerLookup lookup_;
  const SchedulerOptions options_;
  std::map<std::string, NodeView> nodes_;
  Uses uses_;
  std::map<std::string, Pod> pods_;
  std::map<GroupKey, Group> groups_;
  std::map<std::string, GroupKey> group_by_owner_;
  std::set<GroupKey> waiting_;
  std::set<std::string> untried_;   // pending pods not tried yet
  std::set<std::string> reserved_;  // machines reserved for an older owner, during place()
  uint64_t groups_made_ = 0;
  bool changed_ = false;
};

}  // namespace lockstep::local
