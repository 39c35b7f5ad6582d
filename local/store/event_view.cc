#include "local/store/event_view.h"

#include <array>
#include <string_view>
#include <utility>

namespace lockstep::local {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kCoreToNew = {{
    {"involvedObject", "regarding"},
    {"message", "note"},
    {"source", "deprecatedSource"},
    {"firstTimestamp", "deprecatedFirstTimestamp"},
    {"lastTimestamp", "deprecatedLastTimestamp"},
    {"count", "deprecatedCount"},
    {"reportingComponent", "reportingController"},
}};

void rename(Json& object, std::string_view from, std::string_view to) {
  auto found = object.find(std::string(from));
  if (found == object.end()) return;
  Json value = std::move(*found);
  object.erase(found);
  object[std::string(to)] = std::move(value);
}

Json renamed(Json object, bool to_new, std::string_view api_version) {
  if (!object.is_object()) return object;
  for (const auto& [core, modern] : kCoreToNew)
    rename(object, to_new ? core : modern, to_new ? modern : core);
  if (object.contains("apiVersion")) object["apiVersion"] = api_version;
  return object;
}

// Versions of a custom type differ only in apiVersion (conversion strategy None).
Json with_version(const ResourceType& type, Json object) {
  if (object.is_object() && object.contains("apiVersion"))
    object["apiVersion"] = type.api_version();
  return object;
}

}  // namespace

Json to_view(const ResourceType& type, Json stored) {
  if (type.stored_as == nullptr) return stored;
  if (type.custom) return with_version(type, std::move(stored));
  return renamed(std::move(stored), true, type.api_version());
}

Json from_view(const ResourceType& type, Json object) {
  if (type.stored_as == nullptr) return object;
  // Keep a wrong apiVersion, so that the object is refused later.
  const Json* version = find_member(object, "apiVersion");
  if (version != nullptr && *version != type.api_version()) return object;
  if (type.custom) return with_version(type.storage(), std::move(object));
  return renamed(std::move(object), false, type.storage().api_version());
}

}  // namespace lockstep::local
