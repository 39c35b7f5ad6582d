#include "local/store/event_rules.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "local/store/object_rules.h"
#include "local/store/status_error.h"

namespace lockstep::local {
namespace {

constexpr size_t kWordMax = 128;
constexpr size_t kMessageMax = 1024;

StatusCause missing(std::string field) {
  return {"FieldValueRequired", "Required value", std::move(field)};
}

std::string namespace_of(const Json& object) {
  return string_or(object, "namespace", "");
}

// Newer events have an eventTime; older ones have the times when they were first and last seen.
bool is_of_the_new_sort(const Json& event) {
  return !string_or(event, "eventTime", "").empty();
}

void check_namespaces(const Json& event, std::vector<StatusCause>& causes) {
  const Json* object = find_member(event, "involvedObject");
  const std::string about = object == nullptr ? "" : namespace_of(*object);
  const std::string own = namespace_of(metadata_of(event));
  const bool newer = is_of_the_new_sort(event);
  const bool of_a_cluster = own == "default" || (newer && own == "kube-system");
  const bool agree = about.empty() ? of_a_cluster : newer || about == own;
  if (!agree)
    causes.push_back(
        wrong_field(about, "does not match event.namespace", "involvedObject.namespace"));
}

void check_reporter(const Json& event, std::vector<StatusCause>& causes) {
  static constexpr std::array<std::pair<const char*, const char*>, 4> kWords = {
      {{"reportingComponent", "reportingController"},
       {"reportingInstance", "reportingInstance"},
       {"action", "action"},
       {"reason", "reason"}}};
  for (const auto& [key, field] : kWords) {
    const std::string text = string_or(event, key, "");
    if (text.empty()) causes.push_back(missing(field));
    if (text.size() > kWordMax)
      causes.push_back(wrong_field("", "can have at most 128 characters", field));
  }
  const std::string controller = string_or(event, "reportingComponent", "");
  if (!controller.empty() && !is_qualified_name(controller))
    causes.push_back(wrong_field(controller, "must be a qualified name", "reportingController"));
  if (string_or(event, "message", "").size() > kMessageMax)
    causes.push_back(wrong_field("", "can have at most 1024 characters", "message"));
}

// Checks what the new API requires in addition, and that fields it no longer uses are unset.
void check_modern(const Json& event, std::vector<StatusCause>& causes) {
  if (!is_of_the_new_sort(event)) causes.push_back(missing("eventTime"));
  const std::string type = string_or(event, "type", "");
  if (type != "Normal" && type != "Warning")
    causes.push_back(wrong_field(type, "has invalid value: " + type, "type"));
  for (const char* key : {"firstTimestamp", "lastTimestamp", "count", "source"}) {
    const Json* value = find_member(event, key);
    if (value != nullptr && !value->is_null() && *value != 0 && *value != Json::object())
      causes.push_back(wrong_field("", "needs to be unset", key));
  }
}

}  // namespace

std::optional<ApiResponse> check_new_event(const ResourceType& view, const Json& event) {
  std::vector<StatusCause> causes;
  const bool modern = view.stored_as != nullptr;
  check_namespaces(event, causes);
  if (is_of_the_new_sort(event)) check_reporter(event, causes);
  if (modern) check_modern(event, causes);
  if (causes.empty()) return std::nullopt;
  return invalid_object(view.storage(), string_or(metadata_of(event), "name", ""), causes);
}

}  // namespace lockstep::local
