#include "controller/plan/pod_view.h"

#include <charconv>
#include <initializer_list>

#include "controller/plan/names.h"

namespace lockstep::plan {
namespace {

const Json& member(const Json& object, std::string_view key) {
  static const Json kNothing;
  const Json* found = find_member(object, key);
  return found == nullptr ? kNothing : *found;
}

std::optional<int64_t> number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<WallTime> time_at(const Json& object, std::string_view key) {
  const Result<WallTime> time = wall_time_from_rfc3339(string_or(object, key, ""));
  return time.ok() ? std::optional(*time) : std::nullopt;
}

void read_condition(const Json& condition, PodView& view) {
  const std::string type = string_or(condition, "type", "");
  const bool holds = string_or(condition, "status", "") == "True";
  if (type == "PodScheduled") {
    view.scheduled = holds;
    if (!holds) view.unscheduled_reason = string_or(condition, "message", "");
  } else if (type == "DisruptionTarget" && holds) {
    view.disruption = string_or(condition, "reason", "");
    if (view.message.empty()) view.message = string_or(condition, "message", "");
  }
}

// Every container passes through these states while it starts.
bool is_on_its_way(const std::string& waiting) {
  return waiting.empty() || waiting == "ContainerCreating" || waiting == "PodInitializing";
}

void read_waiting(const Json& container, PodView& view) {
  const Json* waiting = find_member(member(container, "state"), "waiting");
  if (waiting == nullptr || !view.waiting.empty()) return;
  const std::string reason = string_or(*waiting, "reason", "");
  if (is_on_its_way(reason)) return;
  view.waiting = reason;
  view.waiting_message = string_or(*waiting, "message", "");
}

// An init container ends a pod only by failing.
void read_init_failure(const Json& container, PodView& view) {
  const Json* ended = find_member(member(container, "state"), "terminated");
  if (ended == nullptr || !view.message.empty()) return;
  const int64_t code = int_or(*ended, "exitCode", 0);
  if (code == 0) return;
  view.message = "init container " + string_or(container, "name", "?") + " ended with exit code " +
                 std::to_string(code);
  const std::string message = string_or(*ended, "message", "");
  if (!message.empty()) view.message += ": " + message;
}

void read_container(const Json& container, PodView& view) {
  if (string_or(container, "name", "") != kNodeContainer) return;
  const Json& state = member(container, "state");
  if (const Json* ended = find_member(state, "terminated")) {
    view.exit_code = int_or(*ended, "exitCode", 0);
    view.ended_at = time_at(*ended, "finishedAt");
    if (view.reason.empty()) view.reason = string_or(*ended, "reason", "");
    if (view.message.empty()) view.message = string_or(*ended, "message", "");
  }
}

void read_status(const Json& status, PodView& view) {
  view.phase = string_or(status, "phase", "Pending");
  view.ip = string_or(status, "podIP", "");
  view.reason = string_or(status, "reason", "");
  view.message = string_or(status, "message", "");
  const Json& conditions = member(status, "conditions");
  if (conditions.is_array()) {
    for (const Json& condition : conditions) read_condition(condition, view);
  }
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    const Json& containers = member(status, list);
    if (!containers.is_array()) continue;
    for (const Json& container : containers) {
      if (list == std::string_view("initContainerStatuses")) read_init_failure(container, view);
      read_container(container, view);
      read_waiting(container, view);
    }
  }
}

const Json& controller_of(const Json& object) {
  static const Json kNobody = Json::object();
  const Json& owners = member(member(object, "metadata"), "ownerReferences");
  if (!owners.is_array()) return kNobody;
  for (const Json& owner : owners) {
    if (bool_or(owner, "controller", false)) return owner;
  }
  return kNobody;
}

void copy(const Json& from, std::initializer_list<const char*> keys, Json& to) {
  to = to.is_null() ? Json::object() : std::move(to);
  for (const char* key : keys) {
    if (const Json* value = find_member(from, key)) to[key] = *value;
  }
}

// Copies the labels or annotations that are read. All annotations of ours count: newer versions add
// some.
void copy_marks(const Json& metadata, Json& to) {
  copy(member(metadata, "labels"), {kNodeIndexLabel, kIncarnationLabel}, to["labels"]);
  const Json& annotations = member(metadata, "annotations");
  if (!annotations.is_object()) return;
  for (const auto& [key, value] : annotations.items()) {
    if (key.starts_with(kOurLabelPrefix)) to["annotations"][key] = value;
  }
}

// Returns the list's elements that `part_of` keeps anything of.
Json parts_of(const Json& list, Json (*part_of)(const Json& element)) {
  Json parts = Json::array();
  if (!list.is_array()) return parts;
  for (const Json& element : list) {
    if (Json part = part_of(element); !part.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

Json read_part_of_condition(const Json& condition) {
  const std::string type = string_or(condition, "type", "");
  Json part;
  if (type == "PodScheduled" || type == "DisruptionTarget") {
    copy(condition, {"type", "status", "reason", "message"}, part);
  }
  return part;
}

// A container that runs, or will as usual, tells nothing.
Json read_part_of_container(const Json& container) {
  const Json& state = member(container, "state");
  Json part;
  if (find_member(state, "terminated") != nullptr || find_member(state, "waiting") != nullptr) {
    copy(container, {"name", "state"}, part);
  }
  return part;
}

}  // namespace

std::string controller_uid(const Json& object) {
  return string_or(controller_of(object), "uid", "");
}

std::string controller_name(const Json& object) {
  return string_or(controller_of(object), "name", "");
}

Json trimmed_pod(const Json& pod) {
  const Json& metadata = member(pod, "metadata");
  Json kept = Json::object();
  copy(metadata, {"name", "namespace", "uid", "resourceVersion"}, kept["metadata"]);
  const Json& owner = controller_of(pod);
  if (string_or(owner, "kind", "") != kKind) return kept;
  copy(metadata, {"creationTimestamp", "deletionTimestamp"}, kept["metadata"]);
  Json& kept_owner = kept["metadata"]["ownerReferences"].emplace_back();
  copy(owner, {"kind", "name", "uid", "controller"}, kept_owner);
  copy_marks(metadata, kept["metadata"]);
  copy(member(pod, "spec"), {"nodeName"}, kept["spec"]);
  const Json& status = member(pod, "status");
  copy(status, {"phase", "podIP", "reason", "message"}, kept["status"]);
  kept["status"]["conditions"] = parts_of(member(status, "conditions"), read_part_of_condition);
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    kept["status"][list] = parts_of(member(status, list), read_part_of_container);
  }
  return kept;
}

std::optional<PodView> pod_view_from_json(const Json& pod) {
  const Json& metadata = member(pod, "metadata");
  const Json& labels = member(metadata, "labels");
  const auto index = number(string_or(labels, kNodeIndexLabel, ""));
  const auto incarnation = number(string_or(labels, kIncarnationLabel, ""));
  if (!index || !incarnation) return std::nullopt;
  PodView view;
  view.name = string_or(metadata, "name", "");
  view.uid = string_or(metadata, "uid", "");
  view.owner_uid = controller_uid(pod);
  view.node_index = *index;
  view.incarnation = *incarnation;
  const Json& annotations = member(metadata, "annotations");
  view.created_in_round = number(string_or(annotations, kCreatedInRoundAnnotation, ""));
  const std::string requests = string_or(annotations, kRequestsAnnotation, "");
  view.is_encrypted = requests == kRequestsEncrypted;
  view.is_signed = requests == kRequestsSigned || view.is_encrypted;
  const std::string warning = string_or(annotations, kPreemptionWarning, "");
  view.is_warned = !warning.empty() && warning != "false";
  if (view.created_in_round.value_or(0) < 0) view.created_in_round.reset();
  view.terminating = !string_or(metadata, "deletionTimestamp", "").empty();
  view.gone_by = time_at(metadata, "deletionTimestamp");
  view.created_at = time_at(metadata, "creationTimestamp");
  const Json& spec = member(pod, "spec");
  view.node_name = string_or(spec, "nodeName", "");
  read_status(member(pod, "status"), view);
  view.scheduled = view.scheduled || !view.node_name.empty();
  return view;
}

}  // namespace lockstep::plan
