#include "local/node/node_match.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "local/node/fields.h"
#include "local/store/storage.h"

namespace lockstep::local {
namespace {

constexpr char kUnschedulableTaint[] = "node.kubernetes.io/unschedulable";

std::optional<int64_t> number_of(const std::string& text) {
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_beyond(const std::string* found, const Json& values, bool greater) {
  if (found == nullptr || values.size() != 1 || !values[0].is_string()) return false;
  std::optional<int64_t> left = number_of(*found);
  std::optional<int64_t> right = number_of(values[0]);
  return left && right && (greater ? *left > *right : *left < *right);
}

// Evaluates one requirement of a term: {key, operator, values}. `found` is null if the node has no
// such label.
bool requirement_holds(const Json& requirement, const std::string* found) {
  const Json& values = array_of(requirement, "values");
  std::string how = string_or(requirement, "operator", "");
  if (how == "Exists") return found != nullptr;
  if (how == "DoesNotExist") return found == nullptr;
  bool listed = found != nullptr && std::find(values.begin(), values.end(), *found) != values.end();
  if (how == "In") return listed;
  if (how == "NotIn") return !listed;
  if (how == "Gt" || how == "Lt") return is_beyond(found, values, how == "Gt");
  return false;
}

const std::string* label_of(const NodeView& node, const std::string& key) {
  auto found = node.labels.find(key);
  return found == node.labels.end() ? nullptr : &found->second;
}

// A term without requirements matches nothing.
bool term_holds(const Json& term, const NodeView& node) {
  const Json& labels = array_of(term, "matchExpressions");
  const Json& fields = array_of(term, "matchFields");
  if (labels.empty() && fields.empty()) return false;
  for (const Json& requirement : labels) {
    if (!requirement_holds(requirement, label_of(node, string_or(requirement, "key", ""))))
      return false;
  }
  for (const Json& requirement : fields) {
    bool is_name = string_or(requirement, "key", "") == "metadata.name";
    if (!requirement_holds(requirement, is_name ? &node.name : nullptr)) return false;
  }
  return true;
}

bool selector_holds(const Json& pod_spec, const NodeView& node) {
  for (const auto& [key, value] : object_of(pod_spec, "nodeSelector").items()) {
    const std::string* found = label_of(node, key);
    if (found == nullptr || value != *found) return false;
  }
  const Json& affinity = object_of(object_of(pod_spec, "affinity"), "nodeAffinity");
  const Json* required = find_member(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
  if (required == nullptr || required->is_null()) return true;
  const Json& terms = array_of(*required, "nodeSelectorTerms");
  return std::any_of(terms.begin(), terms.end(),
                     [&](const Json& term) { return term_holds(term, node); });
}

}  // namespace

NodeView node_view(const Json& node) {
  NodeView view;
  view.name = string_or(metadata_of(node), "name", "");
  for (const auto& [key, value] : object_of(metadata_of(node), "labels").items()) {
    if (value.is_string()) view.labels[key] = value;
  }
  const Json& spec = object_of(node, "spec");
  view.unschedulable = bool_or(spec, "unschedulable", false);
  for (const Json& taint : array_of(spec, "taints"))
    view.taints.push_back({string_or(taint, "key", ""), string_or(taint, "value", ""),
                           string_or(taint, "effect", "")});
  view.allocatable = resources_from_json(object_of(object_of(node, "status"), "allocatable"));
  return view;
}

bool tolerates(const Json& toleration, const Taint& taint) {
  std::string effect = string_or(toleration, "effect", "");
  if (!effect.empty() && effect != taint.effect) return false;
  std::string key = string_or(toleration, "key", "");
  std::string how = string_or(toleration, "operator", "Equal");
  if (key.empty()) return how == "Exists";
  if (key != taint.key) return false;
  return how == "Exists" || string_or(toleration, "value", "") == taint.value;
}

bool any_tolerates(const Json& tolerations, const Taint& taint) {
  return std::any_of(tolerations.begin(), tolerations.end(),
                     [&](const Json& toleration) { return tolerates(toleration, taint); });
}

std::string node_mismatch(const Json& pod_spec, const NodeView& node) {
  const Json& tolerations = array_of(pod_spec, "tolerations");
  if (node.unschedulable && !any_tolerates(tolerations, {kUnschedulableTaint, "", "NoSchedule"}))
    return "node(s) were unschedulable";
  for (const Taint& taint : node.taints) {
    bool keeps_away = taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    if (keeps_away && !any_tolerates(tolerations, taint))
      return "node(s) had untolerated taint {" + taint.key + ": " + taint.value + "}";
  }
  if (!selector_holds(pod_spec, node)) return "node(s) didn't match Pod's node affinity/selector";
  return "";
}

}  // namespace lockstep::local
