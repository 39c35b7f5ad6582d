#include "local/node/scheduler.h"

#include <algorithm>

#include "local/node/fields.h"
#include "local/store/storage.h"

namespace lockstep::local {
namespace {

constexpr char kPodsResource[] = "pods";

const Json* controller_of(const Json& pod) {
  for (const Json& owner : owner_references(pod)) {
    if (owner.is_object() && bool_or(owner, "controller", false)) return &owner;
  }
  return nullptr;
}

// False for pods of other schedulers and pods with scheduling gates.
bool is_ours(const Json& spec) {
  return string_or(spec, "schedulerName", "default-scheduler") == "default-scheduler" &&
         array_of(spec, "schedulingGates").empty();
}

Json scheduling_fields(const Json& spec) {
  Json part = Json::object();
  for (const char* key : {"nodeSelector", "affinity", "tolerations"}) {
    if (const Json* member = find_member(spec, key)) part[key] = *member;
  }
  return part;
}

int64_t amount_of(const Resources& resources, const std::string& name) {
  auto found = resources.find(name);
  return found == resources.end() ? 0 : found->second;
}

int64_t pods_max(const NodeView& node) {
  return amount_of(node.allocatable, kPodsResource) / 1000;
}

}  // namespace

void Scheduler::node_changed(const Json& node) {
  NodeView view = node_view(node);
  auto found = nodes_.find(view.name);
  if (found != nodes_.end() && found->second == view) return;
  nodes_.insert_or_assign(view.name, view);
  for (auto& [key, group] : groups_) group.never_fits = false;
  changed_ = true;
}

void Scheduler::node_gone(const std::string& name) {
  nodes_.erase(name);
  for (auto& [key, group] : groups_) group.never_fits = false;
  changed_ = true;
}

Scheduler::GroupKey Scheduler::group_of(const Json& pod, const std::string& uid) {
  const Json* owner = controller_of(pod);
  std::string owner_uid = owner == nullptr ? uid : string_or(*owner, "uid", uid);
  auto [found, is_new] = group_by_owner_.try_emplace(owner_uid);
  if (is_new) {
    const Json& metadata = metadata_of(pod);
    OwnerFacts facts;
    if (owner != nullptr) facts = lookup_(string_or(metadata, "namespace", ""), *owner);
    if (facts.created.empty()) facts.created = string_or(metadata, "creationTimestamp", "");
    found->second = {facts.created, ++groups_made_};
    Group& group = groups_[found->second];
    group.owner_uid = owner_uid;
    group.wanted = facts.pods;
  }
  return found->second;
}

Scheduler::Pod& Scheduler::add_pod(const Json& object, const std::string& uid, TimePoint now) {
  const Json& metadata = metadata_of(object);
  Pod& pod = pods_[uid];
  pod.namespace_ = string_or(metadata, "namespace", "");
  pod.name = string_or(metadata, "name", "");
  pod.node = node_of(object);
  pod.ended = is_terminal(object);
  pod.requests = pod_requests(object);
  pod.group = group_of(object, uid);
  groups_[pod.group].pods.insert(uid);
  groups_[pod.group].never_fits = false;
  if (!pod.node.empty()) {
    if (!pod.ended) occupy(pod, 1);
    return pod;
  }
  pod.spec = scheduling_fields(object_of(object, "spec"));
  wait_for_place(pod, uid, now);
  return pod;
}

void Scheduler::wait_for_place(Pod& pod, const std::string& uid, TimePoint now) {
  Group& group = groups_[pod.group];
  group.waiting.insert(uid);
  group.since = now;
  waiting_.insert(pod.group);
  untried_.insert(uid);
  changed_ = true;
}

void Scheduler::count(Use& use, const Pod& pod, int sign) {
  use.pods += sign;
  for (const auto& [name, amount] : pod.requests) use.resources[name] += sign * amount;
}

void Scheduler::occupy(const Pod& pod, int sign) {
  count(uses_[pod.node], pod, sign);
  changed_ = changed_ || sign < 0;
}

void Scheduler::pod_changed(const Json& object, TimePoint now) {
  std::string uid = uid_of(object);
  std::string node = node_of(object);
  auto found = pods_.find(uid);
  if (node.empty() &&
      (is_deleting(object) || is_terminal(object) || !is_ours(object_of(object, "spec"))))
    return pod_gone(uid);
  if (found == pods_.end()) {
    add_pod(object, uid, now);
    return;
  }
  Pod& pod = found->second;
  if (pod.node.empty() && node.empty()) return;
  if (pod.node != node && !node.empty()) {  // something else placed it
    pod_gone(uid);
    add_pod(object, uid, now);
  } else if (!pod.ended && is_terminal(object)) {
    pod.ended = true;
    occupy(pod, -1);
  }
}

void Scheduler::pod_gone(const std::string& uid) {
  auto found = pods_.find(uid);
  if (found == pods_.end()) return;
  Pod& pod = found->second;
  if (!pod.node.empty() && !pod.ended) occupy(pod, -1);
  Group& group = groups_[pod.group];
  group.pods.erase(uid);
  group.waiting.erase(uid);
  group.never_fits = false;
  if (group.waiting.empty()) waiting_.erase(pod.group);
  if (group.pods.empty()) {
    group_by_owner_.erase(group.owner_uid);
    groups_.erase(pod.group);
  }
  untried_.erase(uid);
  pods_.erase(found);
}

void Scheduler::not_bound(const std::string& uid, TimePoint now) {
  auto found = pods_.find(uid);
  if (found == pods_.end() || found->second.node.empty()) return;
  Pod& pod = found->second;
  occupy(pod, -1);
  pod.node.clear();
  wait_for_place(pod, uid, now);
}

std::string Scheduler::why_unschedulable(const Pod& pod, const NodeView& node,
                                         const Uses& uses) const {
  if (!options_.enforce_resources) return "";
  if (std::string reason = node_mismatch(pod.spec, node); !reason.empty()) return reason;
  static const Use kUnused;
  auto used = uses.find(node.name);
  const Use& use = used == uses.end() ? kUnused : used->second;
  if (use.pods >= pods_max(node)) return "Too many pods";
  for (const auto& [name, amount] : pod.requests) {
    if (amount > amount_of(node.allocatable, name) - amount_of(use.resources, name))
      return "Insufficient " + name;
  }
  return "";
}

std::optional<std::string> Scheduler::best_machine(const Pod& pod, const Uses& uses,
                                                   const std::map<std::string, int64_t>& of_group,
                                                   const std::set<std::string>& closed) const {
  std::optional<std::string> best;
  std::pair<int64_t, int64_t> best_load;
  for (const auto& [name, node] : nodes_) {
    if (closed.contains(name) || !why_unschedulable(pod, node, uses).empty()) continue;
    auto own = of_group.find(name);
    auto used = uses.find(name);
    std::pair<int64_t, int64_t> load{own == of_group.end() ? 0 : own->second,
                                     used == uses.end() ? 0 : used->second.pods};
    if (best && load >= best_load) continue;
    best = name;
    best_load = load;
  }
  return best;
}

std::optional<std::map<std::string, std::string>> Scheduler::fit(
    const Group& group, Uses uses, const std::set<std::string>& closed) const {
  std::map<std::string, int64_t> of_group;
  for (const std::string& uid : group.pods) {
    const Pod& pod = pods_.at(uid);
    if (!pod.node.empty() && !pod.ended) ++of_group[pod.node];
  }
  // Sorted by name: the order must be deterministic, but pod 10 may precede pod 9.
  std::map<std::string, std::string> by_name;
  for (const std::string& uid : group.waiting) by_name[pods_.at(uid).name + "/" + uid] = uid;
  std::map<std::string, std::string> machines;
  for (const auto& [name, uid] : by_name) {
    const Pod& pod = pods_.at(uid);
    std::optional<std::string> machine = best_machine(pod, uses, of_group, closed);
    if (!machine) return std::nullopt;
    count(uses[*machine], pod, 1);
    ++of_group[*machine];
    machines[uid] = *machine;
  }
  return machines;
}

bool Scheduler::has_free_machine() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    auto used = uses_.find(entry.first);
    int64_t pods = used == uses_.end() ? 0 : used->second.pods;
    return !reserved_.contains(entry.first) &&
           (!options_.enforce_resources || pods < pods_max(entry.second));
  });
}

// Reserves the machines that could hold the pods of a group that waits for room. Reserves nothing
// for a group that would not fit on empty machines either.
void Scheduler::reserve(Group& group) {
  if (group.never_fits) return;
  Uses own;
  for (const std::string& uid : group.pods) {
    const Pod& pod = pods_.at(uid);
    if (!pod.node.empty() && !pod.ended) count(own[pod.node], pod, 1);
  }
  if (!fit(group, std::move(own), {})) {
    group.never_fits = true;
    return;
  }
  for (const std::string& uid : group.waiting) {
    for (const auto& [name, node] : nodes_) {
      if (why_unschedulable(pods_.at(uid), node, {}).empty()) reserved_.insert(name);
    }
  }
}

std::vector<Placement> Scheduler::place(TimePoint now) {
  std::vector<Placement> placements;
  if (!changed_ && next_deadline() > now) return placements;
  changed_ = false;
  reserved_.clear();
  std::vector<GroupKey> keys(waiting_.begin(), waiting_.end());
  for (const GroupKey& key : keys) {
    if (!has_free_machine()) break;
    Group& group = groups_[key];
    bool gathers = static_cast<int64_t>(group.pods.size()) < group.wanted;
    if (gathers && now < group.since + options_.gather) continue;
    if (auto machines = fit(group, uses_, reserved_))
      place_group(group, *machines, placements);
    else
      reserve(group);
    if (group.waiting.empty()) waiting_.erase(key);
  }
  std::vector<std::string> unreported(untried_.begin(), untried_.end());
  for (const std::string& uid : unreported) {
    const Group& group = groups_[pods_.at(uid).group];
    bool gathers = static_cast<int64_t>(group.pods.size()) < group.wanted;
    if (!gathers || now >= group.since + options_.gather) report_unschedulable(uid, placements);
  }
  reserved_.clear();
  return placements;
}

void Scheduler::place_group(Group& group, const std::map<std::string, std::string>& machines,
                            std::vector<Placement>& placements) {
  for (const auto& [uid, machine] : machines) {
    Pod& pod = pods_.at(uid);
    pod.node = machine;
    pod.last_message.clear();
    occupy(pod, 1);
    group.waiting.erase(uid);
    untried_.erase(uid);
    placements.push_back({pod.namespace_, pod.name, uid, machine, ""});
  }
}

void Scheduler::report_unschedulable(const std::string& uid, std::vector<Placement>& placements) {
  untried_.erase(uid);
  Pod& pod = pods_.at(uid);
  std::string message = explanation(pod);
  if (message == pod.last_message) return;
  pod.last_message = message;
  placements.push_back({pod.namespace_, pod.name, uid, "", message});
}

std::string Scheduler::explanation(const Pod& pod) const {
  if (nodes_.empty()) return "no nodes available to schedule pods";
  std::map<std::string, int> counts;
  for (const auto& [name, node] : nodes_) {
    std::string reason = why_unschedulable(pod, node, uses_);
    if (reason.empty() && reserved_.contains(name)) reason = "node(s) are reserved for older pods";
    if (reason.empty()) reason = "node(s) had no room for all pods of its owner";
    ++counts[reason];
  }
  std::vector<std::string> parts;
  parts.reserve(counts.size());
  for (const auto& [reason, count] : counts) parts.push_back(std::to_string(count) + " " + reason);
  std::sort(parts.begin(), parts.end());
  std::string text = "0/" + std::to_string(nodes_.size()) + " nodes are available: ";
  for (size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : ", ") + parts[i];
  return text + ".";
}

TimePoint Scheduler::next_deadline() const {
  TimePoint next = TimePoint::max();
  for (const std::string& uid : untried_) {
    const Group& group = groups_.at(pods_.at(uid).group);
    next = std::min(next, group.since + options_.gather);
  }
  return next;
}

}  // namespace lockstep::local
