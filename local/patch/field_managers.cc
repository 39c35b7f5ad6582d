#include "local/patch/field_managers.h"

#include <algorithm>
#include <map>
#include <optional>

#include "local/patch/field_set.h"
#include "local/patch/field_walk.h"
#include "local/patch/managed_fields.h"

namespace lockstep::local {
namespace {

constexpr const char* kBeforeFirstApply = "before-first-apply";
constexpr const char* kManagedFields = "managedFields";
// kubectl moves objects from client-side to server-side apply. Client-side `kubectl apply` keeps
// its last intent in this annotation.
constexpr const char* kKubectl = "kubectl";
constexpr const char* kLastApplied = "kubectl.kubernetes.io/last-applied-configuration";

const Json* managed_fields_of(const Json& object) {
  const Json* metadata = find_member(object, "metadata");
  const Json* entries = metadata == nullptr ? nullptr : find_member(*metadata, kManagedFields);
  return entries == nullptr || entries->is_null() ? nullptr : entries;
}

Managers stored_managers(const Json* object) {
  const Json* entries = object == nullptr ? nullptr : managed_fields_of(*object);
  return entries == nullptr ? Managers() : Managers::stored(*entries);
}

// Returns the managers that an update starts from: those of the live object, or the client's edit
// of them.
Managers managers_to_go_on_with(const Json* live, Json& object, const FieldWriter& writer) {
  const Json* known = live == nullptr ? nullptr : managed_fields_of(*live);
  const Json* sent = managed_fields_of(object);
  // Most clients send the entries back as they read them: move those instead of copying.
  if (sent != nullptr && known != nullptr && *sent == *known)
    return Managers::stored(std::move(object["metadata"][kManagedFields]));
  if (sent != nullptr && writer.subresource.empty()) {
    if (*sent == Json::array() || *sent == Json::array({Json::object()})) return {};
    Result<Managers> read = Managers::read(*sent);
    if (read.ok() && !read->empty()) return *std::move(read);
  }
  return stored_managers(live);
}

void set_managed_fields(Json& object, Managers managers) {
  Json entries = managers.take();
  Json& metadata = object["metadata"];
  if (!metadata.is_object()) metadata = Json::object();
  if (entries.empty()) {
    metadata.erase(kManagedFields);
  } else {
    metadata[kManagedFields] = std::move(entries);
  }
}

// Built-in kinds start with empty parts, as Go structs do; custom kinds start with nothing.
Json empty_object(const FieldWriter& writer) {
  const size_t slash = writer.api_version.find('/');
  const std::string group = slash == std::string::npos ? "" : writer.api_version.substr(0, slash);
  const bool built_in = group.find('.') == std::string::npos || group.ends_with(".k8s.io");
  Json object = {{"metadata", Json::object()}};
  if (built_in) object.update({{"spec", Json::object()}, {"status", Json::object()}});
  return object;
}

// Takes changed fields from the other managers, and removed fields from all managers.
void take_from_others(Managers& managers, const ManagerIdentity& self,
                      const FieldChanges& changes) {
  for (ManagedEntry& entry : managers.entries()) {
    subtract(entry.fields(), changes.removed);
    if (self.matches(entry)) continue;
    subtract(entry.fields(), changes.modified);
    subtract(entry.fields(), changes.added);
  }
}

void take_fields(Managers& managers, const ManagerIdentity& self, const FieldChanges& changes,
                 WallTime now) {
  take_from_others(managers, self, changes);
  if (changes.added.empty() && changes.modified.empty()) return;
  ManagedEntry& entry = managers.touch(self, now);
  merge_into(entry.fields(), changes.modified);
  merge_into(entry.fields(), changes.added);
}

std::string quoted(const std::string& text) {
  return dump_json(text);
}

// Source: k8s.io/apimachinery, pkg/util/managedfields/internal/conflict.go.
std::string holder_text(const ManagedEntry& entry) {
  std::string text = quoted(entry.text("manager"));
  if (const std::string subresource = entry.text("subresource"); !subresource.empty())
    text += " with subresource " + quoted(subresource);
  if (!entry.is_applied()) text += " using " + entry.text("apiVersion");
  return text;
}

struct Conflict {
  const ManagedEntry* holder;
  Json fields;
};

std::vector<Conflict> find_conflicts(Managers& managers, const ManagerIdentity& self,
                                     const FieldChanges& changes) {
  Json changed = changes.modified;
  merge_into(changed, changes.added);
  std::vector<Conflict> conflicts;
  for (const ManagedEntry& entry : managers.entries()) {
    if (self.matches(entry)) continue;
    Json fields = intersect(entry.fields(), changed);
    if (!fields.empty()) conflicts.push_back({&entry, std::move(fields)});
  }
  return conflicts;
}

std::vector<ApplyConflict> reported(const std::vector<Conflict>& conflicts) {
  std::vector<ApplyConflict> list;
  for (const Conflict& conflict : conflicts) {
    for (std::string& path : field_paths(conflict.fields))
      list.push_back({conflict.holder->text("manager"), std::move(path),
                      "conflict with " + holder_text(*conflict.holder)});
  }
  return list;
}

const Json* annotation(const Json& object, const char* name) {
  const Json* metadata = find_member(object, "metadata");
  const Json* annotations = metadata == nullptr ? nullptr : find_member(*metadata, "annotations");
  return annotations == nullptr ? nullptr : find_member(*annotations, name);
}

// Returns the fields that client-side `kubectl apply` set and that did not change since. kubectl
// may take them over with server-side apply without force.
Json fields_of_last_applied(const Shape& shape, const Json& live) {
  const Json* text = annotation(live, kLastApplied);
  if (text == nullptr || !text->is_string()) return Json::object();
  const Result<Json> last = parse_json(text->get_ref<const std::string&>());
  if (!last.ok() || !last->is_object()) return Json::object();
  Json fields = intended_fields(shape, *last);
  const FieldChanges changes = compare_fields(shape, *last, live);
  subtract(fields, changes.modified);
  subtract(fields, changes.removed);
  return fields;
}

std::optional<PatchError> check_intent(const Shape& shape, const Json& intent,
                                       const FieldWriter& writer) {
  if (!intent.is_object()) {
    return PatchError{
        400, "error decoding YAML: expected an object, found " + std::string(intent.type_name())};
  }
  const Json* entries = managed_fields_of(intent);
  if (entries != nullptr) return PatchError{400, "metadata.managedFields must be nil"};
  const std::string version = string_or(intent, "apiVersion", "");
  if (version != writer.api_version) {
    return PatchError{400, "Incorrect version specified in apply patch. Specified patch version: " +
                               version + ", expected: " + writer.api_version};
  }
  const std::vector<std::string> problems = intent_problems(shape, intent);
  if (problems.empty()) return std::nullopt;
  const Json* metadata = find_member(intent, "metadata");
  const Json none;
  std::string message = "failed to create typed patch object (" +
                        string_or(metadata == nullptr ? none : *metadata, "namespace", "") + "/" +
                        string_or(metadata == nullptr ? none : *metadata, "name", "") + "; " +
                        version + ", Kind=" + string_or(intent, "kind", "") + "): ";
  if (problems.size() > 1) message += "errors:";
  for (const std::string& problem : problems)
    message += (problems.size() > 1 ? "\n  " : "") + problem;
  return PatchError{500, std::move(message)};
}

// Returns the fields that other managers own, plus those of the writer's new intent.
Json fields_to_keep(Managers& managers, const ManagerIdentity& self, const Json& wanted) {
  Json kept = wanted;
  for (const ManagedEntry& entry : managers.entries()) {
    if (!self.matches(entry)) merge_into(kept, entry.fields());
  }
  return kept;
}

// Updates the annotation of client-side `kubectl apply`, if there is one, to the last intent.
void keep_last_applied(Json& merged, const Json& intent) {
  const Json* text = annotation(merged, kLastApplied);
  if (text == nullptr || *text == "") return;
  Json last = intent;
  if (annotation(last, kLastApplied) != nullptr) {
    Json& annotations = last["metadata"]["annotations"];
    annotations.erase(kLastApplied);
    if (annotations.empty()) last["metadata"].erase("annotations");
  }
  merged["metadata"]["annotations"][kLastApplied] = dump_json(last) + "\n";
}

bool is_change(const Json* live, const Json& merged, const ManagedEntry* last, const Json& wanted,
               const std::string& api_version) {
  return live == nullptr || merged != *live || last == nullptr || last->fields() != wanted ||
         last->text("apiVersion") != api_version;
}

}  // namespace

std::string conflict_message(const std::vector<ApplyConflict>& conflicts) {
  if (conflicts.size() == 1)
    return "Apply failed with 1 conflict: " + conflicts[0].message + ": " + conflicts[0].field;
  std::map<std::string, std::string> by_holder;
  for (const ApplyConflict& conflict : conflicts)
    by_holder[conflict.message] += "\n- " + conflict.field;
  std::string message = "Apply failed with " + std::to_string(conflicts.size()) + " conflicts: ";
  bool first = true;
  for (const auto& [holder, fields] : by_holder) {
    message += (first ? "conflicts" : "\nconflicts") +
               holder.substr(std::string("conflict").size()) + ":" + fields;
    first = false;
  }
  return message;
}

ApplyResult apply_intent(const SchemaNode& schema, const Json* live, const Json& intent,
                         const FieldWriter& writer, bool force) {
  const Shape shape = Shape::of_object(schema);
  if (auto error = check_intent(shape, intent, writer)) return *error;
  const ManagerIdentity self{writer.manager, true, writer.api_version, writer.subresource};
  Managers managers = stored_managers(live);
  Json before = live == nullptr ? empty_object(writer) : *live;
  if (live != nullptr && managers.empty()) {
    take_fields(managers, {kBeforeFirstApply, false, writer.api_version, writer.subresource},
                compare_fields(shape, empty_object(writer), *live), writer.now);
  }
  Json wanted = intended_fields(shape, intent);
  Json merged = live == nullptr ? intent : merge_intent(shape, *live, intent);
  if (const ManagedEntry* last = managers.find(self)) {
    remove_fields(shape, merged, last->fields(), fields_to_keep(managers, self, wanted));
    // remove_fields also removed containers that became empty: restore those that the intent has.
    merged = merge_intent(shape, merged, intent);
  }

  const FieldChanges changes = compare_fields(shape, before, merged);
  std::vector<Conflict> conflicts = find_conflicts(managers, self, changes);
  if (!force && !conflicts.empty()) {
    if (writer.manager == kKubectl && live != nullptr) {
      const Json allowed = fields_of_last_applied(shape, *live);
      for (Conflict& conflict : conflicts) subtract(conflict.fields, allowed);
    }
    std::vector<ApplyConflict> list = reported(conflicts);
    if (!list.empty()) return list;
  }
  if (writer.manager == kKubectl) keep_last_applied(merged, intent);
  if (!is_change(live, merged, managers.find(self), wanted, writer.api_version)) return *live;
  take_from_others(managers, self, changes);
  managers.touch(self, writer.now).fields() = std::move(wanted);
  set_managed_fields(merged, std::move(managers));
  return merged;
}

void record_update(const SchemaNode& schema, const Json* live, Json& object,
                   const FieldWriter& writer) {
  Managers managers = managers_to_go_on_with(live, object, writer);
  // An existing object without managers stays without them until the next apply.
  if (live == nullptr || !managers.empty()) {
    const Shape shape = Shape::of_object(schema);
    const FieldChanges changes =
        compare_fields(shape, live == nullptr ? empty_object(writer) : *live, object);
    take_fields(managers, {writer.manager, false, writer.api_version, writer.subresource}, changes,
                writer.now);
  }
  set_managed_fields(object, std::move(managers));
}

}  // namespace lockstep::local
