#include "tests/controller/sim/fake_store.h"

#include <algorithm>

#include "controller/loop/informer.h"

namespace lockstep::sim {
namespace {

ApiReply refuse(ApiOutcome outcome, std::string message) {
  return {.outcome = outcome, .message = std::move(message)};
}

bool matches(const Json& object, const std::map<std::string, std::string>& query) {
  const auto selector = query.find("labelSelector");
  if (selector == query.end()) return true;
  const size_t equals = selector->second.find('=');
  const Json labels = object["metadata"].value("labels", Json::object());
  return labels.value(selector->second.substr(0, equals), "") ==
         selector->second.substr(equals + 1);
}

std::string key_of(const ApiRequest& request) {
  return request.namespace_ + "/" + request.name;
}

}  // namespace

void FakeStore::record(ResourceType type, WatchEventType kind, Json& object) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  log_[std::string(type.plural)].push_back({version_, {.type = kind, .object = object}});
}

Json* FakeStore::find(ResourceType type, const std::string& key) {
  auto& kind = all(type);
  const auto found = kind.find(key);
  return found == kind.end() ? nullptr : &found->second;
}

void FakeStore::update(ResourceType type, const std::string& key,
                       const std::function<void(Json&)>& change) {
  Json* object = find(type, key);
  if (object == nullptr) return;
  const Json before = *object;
  change(*object);
  if (*object != before) record(type, WatchEventType::kModified, *object);
}

void FakeStore::remove(ResourceType type, const std::string& key) {
  Json* object = find(type, key);
  if (object == nullptr) return;
  Json last = *object;
  all(type).erase(key);
  record(type, WatchEventType::kDeleted, last);
}

Json FakeStore::create(ResourceType type, Json object, const std::string& now) {
  object["metadata"]["uid"] = "uid-" + std::to_string(++uids_);
  object["metadata"]["creationTimestamp"] = now;
  object["metadata"]["generation"] = 1;
  record(type, WatchEventType::kAdded, object);
  all(type)[object_key(object)] = object;
  return object;
}

ApiReply FakeStore::list(const ApiRequest& request) {
  const auto query = [&](const char* key) {
    const auto found = request.query.find(key);
    return found == request.query.end() ? std::string() : found->second;
  };
  const size_t limit = query("limit").empty() ? SIZE_MAX : std::stoul(query("limit"));
  const std::string after = query("continue");
  Json items = Json::array();
  Json metadata = {{"resourceVersion", std::to_string(version_)}};
  for (const auto& [key, object] : all(request.type)) {
    if (!after.empty() && key <= after) continue;
    if (!matches(object, request.query)) continue;
    if (items.size() == limit) {
      metadata["continue"] = object_key(items.back());
      break;
    }
    items.push_back(object);
  }
  return {.outcome = ApiOutcome::kOk, .body = {{"metadata", metadata}, {"items", items}}};
}

ApiReply FakeStore::replace(const ApiRequest& request, Json& stored) {
  if (request.body["metadata"].value("resourceVersion", "") !=
      stored["metadata"].value("resourceVersion", "")) {
    return refuse(ApiOutcome::kConflict, "the object has been modified");
  }
  if (on_write) on_write(request, &stored);
  Json next = stored;
  const char* part = request.verb == ApiVerb::kReplaceStatus ? "status" : "spec";
  next[part] = request.body.value(part, Json::object());
  if (next != stored) {
    stored = std::move(next);
    record(request.type, WatchEventType::kModified, stored);
  }
  ++writes_;
  return {.outcome = ApiOutcome::kOk, .body = stored};
}

ApiReply FakeStore::erase(const ApiRequest& request, Json& stored, const std::string& now) {
  const Json preconditions = request.body.value("preconditions", Json::object());
  if (preconditions.contains("uid") && preconditions["uid"] != stored["metadata"]["uid"]) {
    return refuse(ApiOutcome::kConflict, "the UID is another one");
  }
  if (on_write) on_write(request, &stored);
  ++writes_;
  // The kubelet ends it; it is only marked here.
  if (!stored["metadata"].contains("deletionTimestamp")) {
    stored["metadata"]["deletionTimestamp"] = now;
    record(request.type, WatchEventType::kModified, stored);
  }
  return {.outcome = ApiOutcome::kOk, .body = stored};
}

ApiReply FakeStore::serve(const ApiRequest& request, const std::string& now) {
  if (request.verb == ApiVerb::kList) return list(request);
  if (request.verb == ApiVerb::kCreate) {
    if (find(request.type, object_key(request.body)) != nullptr) {
      return refuse(ApiOutcome::kAlreadyExists, "the name is taken");
    }
    if (on_write) on_write(request, nullptr);
    ++writes_;
    return {.outcome = ApiOutcome::kOk, .body = create(request.type, request.body, now)};
  }
  Json* stored = find(request.type, key_of(request));
  if (stored == nullptr) return refuse(ApiOutcome::kNotFound, key_of(request) + " is not there");
  switch (request.verb) {
    case ApiVerb::kGet:
      return {.outcome = ApiOutcome::kOk, .body = *stored};
    case ApiVerb::kDelete:
      return erase(request, *stored, now);
    default:
      return replace(request, *stored);
  }
}

bool FakeStore::events_since(const WatchRequest& request, int64_t version,
                             std::vector<Event>& events) const {
  if (version < compacted_) return false;
  const auto log = log_.find(std::string(request.type.plural));
  if (log == log_.end()) return true;
  const auto first =
      std::upper_bound(log->second.begin(), log->second.end(), version,
                       [](int64_t wanted, const Event& event) { return wanted < event.version; });
  for (auto event = first; event != log->second.end(); ++event) {
    if (matches(event->event.object, request.query)) events.push_back(*event);
  }
  return true;
}

}  // namespace lockstep::sim
