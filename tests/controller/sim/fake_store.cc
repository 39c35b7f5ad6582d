#include "tests/controller/sim/fake_store.h"

#include <algorithm>

#include "controller/loop/informer.h"

namespace lockstep::sim {
namespace {

constexpr size_t kEventsMax = 4096;  // per kind; a server compacts them too

loop::ApiReply refuse(loop::ApiOutcome outcome, std::string message) {
  return {.outcome = outcome, .message = std::move(message)};
}

bool matches(const Json& object, const std::map<std::string, std::string>& query) {
  const auto selector = query.find("labelSelector");
  if (selector == query.end()) return true;
  const size_t equals = selector->second.find('=');
  const Json& labels = member(member(object, "metadata"), "labels");
  return string_or(labels, selector->second.substr(0, equals), "") ==
         selector->second.substr(equals + 1);
}

std::string version_of(const Json& object) {
  return string_or(member(object, "metadata"), "resourceVersion", "");
}

bool has_finalizers(const Json& object) {
  return !member(member(object, "metadata"), "finalizers").empty();
}

// Removes the parts of a pod that nothing here reads, keeping the first container's image: objects
// are copied often.
void leave_out_containers(Json& pod) {
  Json& spec = pod["spec"];
  const Json& containers = member(spec, "containers");
  std::string image = containers.empty() ? "" : string_or(containers.front(), "image", "");
  spec["image"] = std::move(image);
  for (const char* key : {"containers", "initContainers", "securityContext", "tolerations"}) {
    spec.erase(key);
  }
}

std::string text_in(const std::map<std::string, std::string>& query, const char* key) {
  const auto found = query.find(key);
  return found == query.end() ? std::string() : found->second;
}

}  // namespace

bool is_dry_run(const loop::ApiRequest& request) {
  return request.query.contains("dryRun");
}

const Json& member(const Json& object, std::string_view key) {
  static const Json kNothing;
  const Json* found = find_member(object, key);
  return found == nullptr ? kNothing : *found;
}

std::string uid_of(const Json& object) {
  return string_or(member(object, "metadata"), "uid", "");
}

bool is_terminating(const Json& object) {
  return find_member(member(object, "metadata"), "deletionTimestamp") != nullptr;
}

bool is_live_pod(const Json& pod) {
  const std::string phase = string_or(member(pod, "status"), "phase", "Pending");
  return phase != "Succeeded" && phase != "Failed" && !is_terminating(pod);
}

const FakeStore::Kind& FakeStore::kind(loop::ResourceType type) const {
  static const Kind kNone;
  const auto found = kinds_.find(type.plural);
  return found == kinds_.end() ? kNone : found->second;
}

void FakeStore::record(loop::ResourceType type, loop::WatchEventType event, Json object,
                       Object before) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  auto stored = std::make_shared<const Json>(std::move(object));
  Kind& place = kind(type);
  const std::string key = loop::object_key(*stored);
  if (event == loop::WatchEventType::kDeleted) {
    place.objects.erase(key);
  } else {
    place.objects[key] = stored;
  }
  if (place.log.size() >= kEventsMax) {
    const auto half = place.log.begin() + static_cast<std::ptrdiff_t>(kEventsMax / 2);
    place.forgotten = (half - 1)->version;
    place.log.erase(place.log.begin(), half);
  }
  place.log.push_back({version_, event, std::move(stored), std::move(before)});
  if (on_change) on_change(type, Event(place.log.back()));
}

FakeStore::Object FakeStore::find_shared(loop::ResourceType type, const std::string& key) const {
  const Objects& objects = kind(type).objects;
  const auto found = objects.find(key);
  return found == objects.end() ? nullptr : found->second;
}

const Json* FakeStore::find(loop::ResourceType type, const std::string& key) const {
  return find_shared(type, key).get();
}

const FakeStore::Objects& FakeStore::all(loop::ResourceType type) const {
  return kind(type).objects;
}

void FakeStore::update(loop::ResourceType type, const std::string& key,
                       const std::function<void(Json&)>& change) {
  const Object before = find_shared(type, key);
  if (before == nullptr) return;
  Json after = *before;
  change(after);
  if (after == *before) return;
  if (is_terminating(after) && !has_finalizers(after) && has_finalizers(*before)) {
    remove(type, key);
    return;
  }
  if (type.plural == loop::kTrainingJobs.plural &&
      member(after, "spec") != member(*before, "spec")) {
    after["metadata"]["generation"] = int_or(after["metadata"], "generation", 0) + 1;
  }
  record(type, loop::WatchEventType::kModified, std::move(after), before);
}

void FakeStore::remove(loop::ResourceType type, const std::string& key) {
  const Object before = find_shared(type, key);
  if (before != nullptr) record(type, loop::WatchEventType::kDeleted, *before, before);
}

void FakeStore::mark_deleted(loop::ResourceType type, const std::string& key, WallTime now,
                             int64_t grace_seconds) {
  const Json* object = find(type, key);
  if (object == nullptr) return;
  const bool is_pod = type.plural == loop::kPods.plural;
  const bool has_node = find_member(member(*object, "spec"), "nodeName") != nullptr;
  const bool at_once = !is_pod || grace_seconds == 0 || !has_node;
  if (at_once && !has_finalizers(*object)) {
    remove(type, key);
  } else if (!is_terminating(*object)) {
    const WallTime gone_by = now + std::chrono::seconds(is_pod ? grace_seconds : 0);
    update(type, key,
           [&](Json& marked) { marked["metadata"]["deletionTimestamp"] = rfc3339(gone_by); });
  }
}

const Json& FakeStore::create(loop::ResourceType type, Json object, WallTime now) {
  const std::string key = loop::object_key(object);
  object["metadata"]["uid"] = make_uid ? make_uid(key) : "uid-" + std::to_string(++uids_);
  object["metadata"]["creationTimestamp"] = rfc3339(now);
  object["metadata"]["generation"] = 1;
  record(type, loop::WatchEventType::kAdded, std::move(object), nullptr);
  return *find(type, key);
}

loop::ApiReply FakeStore::page_of(const Objects& objects, const loop::ApiRequest& request,
                                  int64_t version) {
  const std::string limit_text = text_in(request.query, "limit");
  const size_t limit = limit_text.empty() ? SIZE_MAX : std::stoul(limit_text);
  const std::string after = text_in(request.query, "continue");
  Json items = Json::array();
  Json metadata = {{"resourceVersion", std::to_string(version)}};
  for (auto it = objects.upper_bound(after); it != objects.end(); ++it) {
    if (!matches(*it->second, request.query)) continue;
    if (items.size() == limit) {
      metadata["continue"] = loop::object_key(items.back());
      break;
    }
    items.push_back(*it->second);
  }
  return {.outcome = loop::ApiOutcome::kOk,
          .body = {{"metadata", std::move(metadata)}, {"items", std::move(items)}}};
}

void FakeStore::compact() {
  compacted_ = version_;
  for (auto& [plural, kind] : kinds_) kind.log.clear();
}

loop::ApiReply FakeStore::create(loop::ApiRequest& request, WallTime now, std::string_view sender) {
  const std::string key = loop::object_key(request.body);
  if (find(request.type, key) != nullptr) {
    return refuse(loop::ApiOutcome::kAlreadyExists, key + " is taken");
  }
  if (is_dry_run(request))
    return {.outcome = loop::ApiOutcome::kOk, .body = std::move(request.body)};
  if (on_write) on_write(request, nullptr, sender);
  // Nothing here reads events.
  if (request.type.plural == loop::kEvents.plural) return {.outcome = loop::ApiOutcome::kOk};
  if (request.type.plural == loop::kPods.plural) leave_out_containers(request.body);
  create(request.type, std::move(request.body), now);
  return {.outcome = loop::ApiOutcome::kOk, .body = find_shared(request.type, key)};
}

void FakeStore::replace_status(loop::ResourceType type, const Object& before, Json status) {
  if (member(*before, "status") == status) return;
  Json after = Json::object();
  for (const auto& [key, value] : before->items()) {
    if (key != "status") after[key] = value;
  }
  after["status"] = std::move(status);
  record(type, loop::WatchEventType::kModified, std::move(after), before);
}

loop::ApiReply FakeStore::replace(loop::ApiRequest& request, const Object& stored,
                                  std::string_view sender) {
  // A server takes writes of this kind without a version.
  const bool is_unconditional =
      request.type.plural == loop::kNetworkPolicies.plural && version_of(request.body).empty();
  if (!is_unconditional && version_of(request.body) != version_of(*stored)) {
    return refuse(loop::ApiOutcome::kConflict, "the object has been modified");
  }
  if (on_write) on_write(request, &*stored, sender);
  const std::string key = request.namespace_ + "/" + request.name;
  if (request.verb == loop::ApiVerb::kReplaceStatus) {
    replace_status(request.type, stored, std::move(request.body["status"]));
  } else {
    update(request.type, key, [&](Json& next) {
      next["spec"] = member(request.body, "spec");
      next["metadata"]["labels"] = member(member(request.body, "metadata"), "labels");
    });
  }
  return {.outcome = loop::ApiOutcome::kOk, .body = find_shared(request.type, key)};
}

loop::ApiReply FakeStore::erase(const loop::ApiRequest& request, const Json& stored, WallTime now,
                                std::string_view sender) {
  const std::string wanted = string_or(member(request.body, "preconditions"), "uid", "");
  if (!wanted.empty() && wanted != uid_of(stored)) {
    return refuse(loop::ApiOutcome::kConflict, "the UID is another one");
  }
  const std::string version =
      string_or(member(request.body, "preconditions"), "resourceVersion", "");
  if (!version.empty() && version != version_of(stored)) {
    return refuse(loop::ApiOutcome::kConflict, "the object has been modified");
  }
  if (on_write) on_write(request, &stored, sender);
  const std::string key = request.namespace_ + "/" + request.name;
  mark_deleted(request.type, key, now, int_or(request.body, "gracePeriodSeconds", 30));
  const Object left = find_shared(request.type, key);
  if (left == nullptr) return {.outcome = loop::ApiOutcome::kOk, .body = {{"kind", "Status"}}};
  return {.outcome = loop::ApiOutcome::kOk, .body = left};
}

loop::ApiReply FakeStore::serve(loop::ApiRequest request, WallTime now, std::string_view sender) {
  if (request.verb == loop::ApiVerb::kList) return page_of(all(request.type), request, version_);
  if (request.verb == loop::ApiVerb::kCreate) return create(request, now, sender);
  const std::string key = request.namespace_ + "/" + request.name;
  const Object stored = find_shared(request.type, key);
  if (stored == nullptr) return refuse(loop::ApiOutcome::kNotFound, key + " is not there");
  switch (request.verb) {
    case loop::ApiVerb::kGet:
      return {.outcome = loop::ApiOutcome::kOk, .body = stored};
    case loop::ApiVerb::kDelete:
      return erase(request, *stored, now, sender);
    default:
      return replace(request, stored, sender);
  }
}

bool FakeStore::events_since(const loop::WatchRequest& request, int64_t version,
                             std::vector<Event>& events) const {
  const Kind& place = kind(request.type);
  if (version < compacted_ || version < place.forgotten) return false;
  const std::vector<Event>& log = place.log;
  auto event = std::upper_bound(log.begin(), log.end(), version,
                                [](int64_t wanted, const Event& e) { return wanted < e.version; });
  for (; event != log.end(); ++event) {
    const bool is_in = matches(*event->object, request.query);
    const bool was_in = event->before != nullptr && matches(*event->before, request.query);
    if (!is_in && !was_in) continue;
    events.push_back(*event);
    if (event->type == loop::WatchEventType::kModified && is_in != was_in) {
      events.back().type = is_in ? loop::WatchEventType::kAdded : loop::WatchEventType::kDeleted;
    }
  }
  return true;
}

}  // namespace lockstep::sim
