#include "local/node/node_controller.h"

#include <algorithm>

#include "local/node/fields.h"
#include "local/store/storage.h"

namespace lockstep::local {
namespace {

constexpr char kUnreachable[] = "node.kubernetes.io/unreachable";
constexpr char kNotReady[] = "node.kubernetes.io/not-ready";
constexpr char kUnschedulable[] = "node.kubernetes.io/unschedulable";
const EventRecorder::Source kSource = {"node-controller", ""};

bool is_own(const std::string& key) {
  return key == kUnreachable || key == kNotReady || key == kUnschedulable;
}

// The taints that a node's state implies: {key, effect}.
std::vector<std::pair<std::string, std::string>> wanted_taints(const std::string& ready,
                                                               bool unschedulable) {
  std::vector<std::pair<std::string, std::string>> wanted;
  if (unschedulable) wanted.emplace_back(kUnschedulable, "NoSchedule");
  const char* key = ready == "Unknown" ? kUnreachable : ready == "False" ? kNotReady : nullptr;
  if (key == nullptr) return wanted;
  wanted.emplace_back(key, "NoSchedule");
  wanted.emplace_back(key, "NoExecute");
  return wanted;
}

const Json* ready_condition(const Json& conditions) {
  for (const Json& condition : conditions) {
    if (condition.is_object() && string_or(condition, "type", "") == "Ready") return &condition;
  }
  return nullptr;
}

std::string node_target(const std::string& name, const char* suffix = "") {
  return "/api/v1/nodes/" + name + suffix;
}

}  // namespace

void NodeController::node_changed(const Json& object) {
  std::string name = string_or(metadata_of(object), "name", "");
  auto [at, is_new] = nodes_.try_emplace(name);
  Node& node = at->second;
  if (is_new) node.last_heartbeat = clock_.now();
  node.uid = uid_of(object);
  node.conditions = array_of(object_of(object, "status"), "conditions");
  const Json* ready = ready_condition(node.conditions);
  node.ready = ready == nullptr ? "" : string_or(*ready, "status", "");
  node.unschedulable = bool_or(object_of(object, "spec"), "unschedulable", false);
  Json taints = array_of(object_of(object, "spec"), "taints");
  bool changed = taints != node.taints;
  node.taints = std::move(taints);
  write_taints(name, node);
  if (!changed) return;
  for (const std::string& uid : node.pods) schedule_eviction(uid, pods_.at(uid));
}

void NodeController::node_gone(const std::string& name) {
  auto found = nodes_.find(name);
  if (found == nodes_.end()) return;
  for (const std::string& uid : found->second.pods)
    set_eviction(uid, pods_.at(uid), TimePoint::max());
  if (found->second.pods.empty()) {
    nodes_.erase(found);
    return;
  }
  Node left;  // its pods still exist
  left.pods = std::move(found->second.pods);
  left.last_heartbeat = clock_.now();
  found->second = std::move(left);
}

void NodeController::lease_changed(const Json& lease) {
  auto found = nodes_.find(string_or(metadata_of(lease), "name", ""));
  if (found == nodes_.end()) return;
  std::string renewed = string_or(object_of(lease, "spec"), "renewTime", "");
  if (renewed == found->second.renewed) return;
  found->second.renewed = renewed;
  found->second.last_heartbeat = clock_.now();
}

void NodeController::pod_changed(const Json& object) {
  std::string uid = uid_of(object);
  std::string node = node_of(object);
  if (node.empty() || is_terminal(object)) return pod_gone(uid);
  const Json& metadata = metadata_of(object);
  auto [at, is_new] = pods_.try_emplace(uid);
  Pod& pod = at->second;
  pod.conditions = array_of(object_of(object, "status"), "conditions");
  pod.tolerations = array_of(object_of(object, "spec"), "tolerations");
  pod.deleting = is_deleting(object);
  if (is_new) {
    pod.namespace_ = string_or(metadata, "namespace", "");
    pod.name = string_or(metadata, "name", "");
    pod.node = node;
    auto [known, is_new_node] = nodes_.try_emplace(node);
    if (is_new_node) known->second.last_heartbeat = clock_.now();
    known->second.pods.insert(uid);
    schedule_eviction(uid, pod);
  } else if (pod.deleting) {
    set_eviction(uid, pod, TimePoint::max());
  }
}

void NodeController::pod_gone(const std::string& uid) {
  auto found = pods_.find(uid);
  if (found == pods_.end()) return;
  set_eviction(uid, found->second, TimePoint::max());
  auto node = nodes_.find(found->second.node);
  if (node != nodes_.end()) node->second.pods.erase(uid);
  pods_.erase(found);
}

void NodeController::write_taints(const std::string& name, Node& node) {
  auto wanted = wanted_taints(node.ready, node.unschedulable);
  Json taints = Json::array();
  for (const Json& taint : node.taints) {
    std::pair<std::string, std::string> is{string_or(taint, "key", ""),
                                           string_or(taint, "effect", "")};
    auto known = std::find(wanted.begin(), wanted.end(), is);
    if (is_own(is.first) && known == wanted.end()) continue;
    if (known != wanted.end()) wanted.erase(known);
    taints.push_back(taint);
  }
  for (const auto& [key, effect] : wanted)
    taints.push_back({{"key", key}, {"effect", effect}, {"timeAdded", rfc3339(clock_.wall_now())}});
  if (taints == node.taints) return;
  Json spec = {{"taints", taints.empty() ? Json(nullptr) : std::move(taints)}};
  api_.patch(node_target(name), {{"metadata", {{"uid", node.uid}}}, {"spec", std::move(spec)}});
}

void NodeController::mark_unknown(const std::string& name, Node& node) {
  std::string now = rfc3339(clock_.wall_now());
  Json conditions = node.conditions;
  if (ready_condition(conditions) == nullptr) conditions.push_back({{"type", "Ready"}});
  for (Json& condition : conditions) {
    if (!condition.is_object() || string_or(condition, "status", "") == "Unknown") continue;
    condition["status"] = "Unknown";
    condition["reason"] = node.renewed.empty() ? "NodeStatusNeverUpdated" : "NodeStatusUnknown";
    condition["message"] = node.renewed.empty() ? "Kubelet never posted node status."
                                                : "Kubelet stopped posting node status.";
    condition["lastTransitionTime"] = now;
  }
  node.ready = "Unknown";
  api_.patch(node_target(name, "/status"), {{"metadata", {{"uid", node.uid}}},
                                            {"status", {{"conditions", std::move(conditions)}}}});
  events_.normal(kSource, {"Node", "", name, node.uid, ""}, "NodeNotReady",
                 "Node " + name + " status is now: NodeNotReady");
  for (const std::string& uid : node.pods) not_ready(uid, pods_.at(uid));
}

void NodeController::not_ready(const std::string& uid, const Pod& pod) {
  Json conditions = pod.conditions;
  for (Json& condition : conditions) {
    if (!condition.is_object() || string_or(condition, "type", "") != "Ready") continue;
    if (string_or(condition, "status", "") != "True") return;
    condition["status"] = "False";
    condition["lastTransitionTime"] = rfc3339(clock_.wall_now());
  }
  std::string target = "/api/v1/namespaces/" + pod.namespace_ + "/pods/" + pod.name + "/status";
  api_.patch(target,
             {{"metadata", {{"uid", uid}}}, {"status", {{"conditions", std::move(conditions)}}}});
  events_.warning(kSource, {"Pod", pod.namespace_, pod.name, uid, ""}, "NodeNotReady",
                  "Node is not ready");
}

// Returns how long the pod may stay despite the taint.
Duration NodeController::toleration_time(const Pod& pod, const Taint& taint) const {
  Duration least = Duration::max();
  bool tolerated = false;
  for (const Json& toleration : pod.tolerations) {
    if (!tolerates(toleration, taint)) continue;
    tolerated = true;
    if (toleration.contains("tolerationSeconds") && toleration["tolerationSeconds"].is_number())
      least = std::min<Duration>(
          least, std::chrono::seconds(std::clamp<int64_t>(
                     int_or(toleration, "tolerationSeconds", 0), 0, int64_t{1} << 31)));
  }
  if (tolerated) return least;
  bool has_default = taint.key == kUnreachable || taint.key == kNotReady;
  return has_default ? options_.eviction : Duration{};
}

void NodeController::schedule_eviction(const std::string& uid, Pod& pod) {
  Duration least = Duration::max();
  for (const Json& json : nodes_[pod.node].taints) {
    Taint taint{string_or(json, "key", ""), string_or(json, "value", ""),
                string_or(json, "effect", "")};
    if (taint.effect == "NoExecute") least = std::min(least, toleration_time(pod, taint));
  }
  TimePoint at = least == Duration::max() ? TimePoint::max() : clock_.now() + least;
  // A change of other taints does not restart the wait.
  if (at != TimePoint::max()) at = std::min(at, pod.evict_at);
  if (!pod.deleting) set_eviction(uid, pod, at);
}

void NodeController::set_eviction(const std::string& uid, Pod& pod, TimePoint at) {
  if (pod.evict_at != TimePoint::max()) evictions_.erase({pod.evict_at, uid});
  pod.evict_at = at;
  if (at != TimePoint::max()) evictions_.insert({at, uid});
}

void NodeController::evict(const std::string& uid, Pod& pod) {
  set_eviction(uid, pod, TimePoint::max());
  pod.deleting = true;
  std::string target = "/api/v1/namespaces/" + pod.namespace_ + "/pods/" + pod.name;
  events_.normal({"taint-eviction-controller", ""}, {"Pod", pod.namespace_, pod.name, uid, ""},
                 "TaintManagerEviction",
                 "Marking for deletion Pod " + pod.namespace_ + "/" + pod.name);
  Json conditions = pod.conditions;
  conditions.push_back({{"type", "DisruptionTarget"},
                        {"status", "True"},
                        {"reason", "DeletionByTaintManager"},
                        {"message", "Taint manager: deleting due to NoExecute taint"},
                        {"lastTransitionTime", rfc3339(clock_.wall_now())}});
  api_.patch(target + "/status",
             {{"metadata", {{"uid", uid}}}, {"status", {{"conditions", std::move(conditions)}}}});
  api_.remove(target, {{"preconditions", {{"uid", uid}}}});
}

void NodeController::step(TimePoint now) {
  for (auto& [name, node] : nodes_) {
    if (node.uid.empty() || node.ready == "Unknown" || now < node.last_heartbeat + options_.grace)
      continue;
    mark_unknown(name, node);
  }
  while (!evictions_.empty() && evictions_.begin()->first <= now) {
    const std::string uid = evictions_.begin()->second;
    evict(uid, pods_.at(uid));
  }
}

TimePoint NodeController::next_deadline() const {
  TimePoint next = evictions_.empty() ? TimePoint::max() : evictions_.begin()->first;
  for (const auto& [name, node] : nodes_) {
    if (!node.uid.empty() && node.ready != "Unknown")
      next = std::min(next, node.last_heartbeat + options_.grace);
  }
  return next;
}

}  // namespace lockstep::local
