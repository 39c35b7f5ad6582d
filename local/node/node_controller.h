#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "local/node/api_caller.h"
#include "local/node/event_recorder.h"
#include "local/node/node_match.h"

namespace lockstep::local {

struct NodeControllerOptions {
  // A machine is unreachable if its Lease is not renewed for this long (Kubernetes: 40 s, 50 s
  // since 1.32).
  Duration grace = std::chrono::seconds(10);
  // How long a pod without tolerations stays on an unreachable machine. Kubernetes: 300 s, through
  // tolerations that it adds to every pod.
  Duration eviction = std::chrono::seconds(5);
};

// A minimal node controller with taint-based eviction. Machines that fall silent get Ready=Unknown
// and the taint node.kubernetes.io/unreachable, and lose their pods; the taint goes when they come
// back. Cordoned machines get node.kubernetes.io/unschedulable. Used on the node's thread only.
// Source: Kubernetes, "Nodes" and "Taints and Tolerations".
class NodeController {
 public:
  // All arguments outlive the object.
  NodeController(ApiCaller& api, const Clock& clock, EventRecorder& events,
                 const NodeControllerOptions& options)
      : api_(api), clock_(clock), events_(events), options_(options) {}

  void node_changed(const Json& node);
  void node_gone(const std::string& name);
  // For Leases in kube-node-lease.
  void lease_changed(const Json& lease);
  void pod_changed(const Json& pod);
  void pod_gone(const std::string& uid);

  void step(TimePoint now);
  TimePoint next_deadline() const;

 private:
  struct Node {
    std::string uid;
    std::string ready;  // True, False, Unknown; empty: not set yet
    Json conditions;
    Json taints;
    bool unschedulable = false;
    std::string renewed;         // the Lease's renewTime, verbatim
    TimePoint last_heartbeat{};  // when renewTime last changed, on our clock
    std::set<std::string> pods;
  };
  struct Pod {
    std::string namespace_;
    std::string name;
    std::string node;
    Json tolerations;
    Json conditions;
    bool deleting = false;
    TimePoint evict_at = TimePoint::max();
  };

  void mark_unknown(const std::string& name, Node& node);
  void write_taints(const std::string& name, Node& node);
  void not_ready(const std::string& uid, const Pod& pod);
  void schedule_eviction(const std::string& uid, Pod& pod);
  void set_eviction(const std::string& uid, Pod& pod, TimePoint at);
  void evict(const std::string& uid, Pod& pod);
  Duration toleration_time(const Pod& pod, const Taint& taint) const;

  ApiCaller& api_;
  const Clock& clock_;
  EventRecorder& events_;
  const NodeControllerOptions options_;
  std::map<std::string, Node> nodes_;
  std::map<std::string, Pod> pods_;  // placed and not ended
  std::set<std::pair<TimePoint, std::string>> evictions_;
};

}  // namespace lockstep::local
