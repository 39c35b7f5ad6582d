// Lists and watches of Api.
#include <algorithm>
#include <charconv>

#include "cli/local/store/api.h"
#include "cli/local/store/event_view.h"
#include "cli/local/store/table_view.h"

namespace lockstep::local {
namespace {

constexpr int64_t kWatchSecondsDefault = 1800;
constexpr int64_t kWatchSecondsMax = 24 * 3600;
constexpr int64_t kListMax = 100'000;

// `<version>~<namespace>~<name>`: the version of the whole list, and its last object so far.
struct ContinueToken {
  int64_t version = 0;
  ObjectKey last;

  std::string text() const {
    return std::to_string(version) + "~" + last.namespace_ + "~" + last.name;
  }
  static std::optional<ContinueToken> parse(const std::string& text) {
    size_t first = text.find('~');
    size_t second = first == std::string::npos ? first : text.find('~', first + 1);
    if (second == std::string::npos) return std::nullopt;
    ContinueToken token;
    auto [end, error] = std::from_chars(text.data(), text.data() + first, token.version);
    if (error != std::errc() || end != text.data() + first) return std::nullopt;
    token.last = {text.substr(first + 1, second - first - 1), text.substr(second + 1)};
    return token;
  }
};

ObjectKey key_of(const Json& object) {
  const Json& metadata = metadata_of(object);
  return {string_or(metadata, "namespace", ""), string_or(metadata, "name", "")};
}

struct SelectedEvent {
  std::string_view kind;
  Json object;
};

// What a change means to a watch with a selector: an object that comes into the selection is ADDED,
// one that leaves it is DELETED. nullopt: not its business.
std::optional<SelectedEvent> selected_event(const Watch& watch, const Change& change) {
  if (!watch.namespace_.empty() && change.key.namespace_ != watch.namespace_) return std::nullopt;
  bool now = change.type != ChangeType::kDeleted && watch.selector.matches(*change.object);
  bool before = change.previous != nullptr && watch.selector.matches(*change.previous);
  if (now)
    return SelectedEvent{before ? "MODIFIED" : "ADDED", to_view(*watch.type, *change.object)};
  if (!before) return std::nullopt;
  Json last = *change.previous;
  last["metadata"]["resourceVersion"] = std::to_string(change.version);
  return SelectedEvent{"DELETED", to_view(*watch.type, std::move(last))};
}

}  // namespace

ApiResponse Api::list(const ApiPath& path) {
  const ResourceType& type = path.type->storage();
  Result<Selector> selector =
      Selector::parse(type, path.parameter("labelSelector"), path.parameter("fieldSelector"));
  Result<std::optional<int64_t>> limit = path.number("limit");
  Result<std::optional<int64_t>> asked = path.number("resourceVersion");
  if (!selector.ok()) return bad_request(selector.error().message);
  if (!limit.ok()) return bad_request(limit.error().message);
  if (!asked.ok()) return bad_request(asked.error().message);
  int64_t version = storage_.version();
  if (asked->value_or(0) > version) return version_too_large(**asked, version);
  if (path.parameter("resourceVersionMatch") == "Exact") version = asked->value_or(version);

  ContinueToken token;
  if (std::string text = path.parameter("continue"); !text.empty()) {
    std::optional<ContinueToken> parsed = ContinueToken::parse(text);
    if (!parsed || parsed->version > version) return bad_request("continue key is not valid");
    token = *parsed;
    version = token.version;
  }
  Result<std::vector<ObjectPtr>> objects = storage_.list_at(type, path.namespace_, version);
  if (!objects.ok())
    return expired(
        "The provided continue parameter or version is too old to display a consistent "
        "list result. Start a new list without it.");

  int64_t room = limit->value_or(0) > 0 ? std::min(**limit, kListMax) : kListMax;
  Json metadata = {{"resourceVersion", std::to_string(version)}};
  Json items = Json::array();
  for (const ObjectPtr& object : *objects) {
    if (token.version > 0 && key_of(*object) <= token.last) continue;
    if (!selector->matches(*object)) continue;
    if (room-- == 0) {
      metadata["continue"] = ContinueToken{version, key_of(items.back())}.text();
      break;
    }
    items.push_back(to_view(*path.type, *object));
  }
  return {200,
          {{"kind", type.list_name()},
           {"apiVersion", path.type->api_version()},
           {"metadata", std::move(metadata)},
           {"items", std::move(items)}}};
}

bool Api::is_watch(const ApiRequest& request) {
  if (request.method != "GET") return false;
  static const TypeRegistry kNoTypes;
  Result<ApiPath> path = parse_target(kNoTypes, request.target);
  return path.ok() && path->flag("watch");
}

std::variant<Watch, ApiResponse> Api::open_watch(const ApiRequest& request) {
  std::lock_guard lock(mutex_);
  Result<ApiPath> path = parse_target(types_, request.target);
  if (!path.ok()) return bad_request(path.error().message);
  if (path->type == nullptr || !path->name.empty()) return unknown_path();
  const ResourceType& type = path->type->storage();
  Result<Selector> selector =
      Selector::parse(type, path->parameter("labelSelector"), path->parameter("fieldSelector"));
  Result<std::optional<int64_t>> from = path->number("resourceVersion");
  Result<std::optional<int64_t>> timeout = path->number("timeoutSeconds");
  if (!selector.ok()) return bad_request(selector.error().message);
  if (!from.ok()) return bad_request(from.error().message);
  if (!timeout.ok()) return bad_request(timeout.error().message);
  if (path->query.contains("sendInitialEvents"))
    return failure(422, "Invalid",
                   "sendInitialEvents is forbidden for watch unless the WatchList feature gate is "
                   "enabled");
  int64_t version = storage_.version();
  if (from->value_or(0) > version) return version_too_large(**from, version);
  Watch watch;
  watch.type = path->type;
  watch.epoch = type.epoch;
  watch.namespace_ = path->namespace_;
  watch.selector = *std::move(selector);
  Result<std::optional<TableRows>> table = wanted_table(request.accept, *path);
  if (!table.ok()) return bad_request(table.error().message);
  watch.table = *table;
  watch.bookmarks = path->flag("allowWatchBookmarks");
  watch.timeout_seconds = std::min(timeout->value_or(kWatchSecondsDefault), kWatchSecondsMax);
  if (watch.timeout_seconds == 0) watch.timeout_seconds = kWatchSecondsDefault;
  watch.position = from->value_or(0);
  if (watch.position == 0) {  // unset or "0": begin with what is there
    for (const ObjectPtr& object : storage_.list(type, watch.namespace_)) {
      if (watch.selector.matches(*object)) watch.initial.push_back(object);
    }
    watch.position = version;
  }
  return watch;
}

Json Api::watch_event(Watch& watch, std::string_view kind, Json object) const {
  if (watch.table.has_value() && kind != "ERROR") {
    object = table_of(*watch.type, object, *watch.table, !watch.has_headers, clock_.wall_now());
    watch.has_headers = true;
  }
  return {{"type", kind}, {"object", std::move(object)}};
}

std::vector<Json> Api::next_events(Watch& watch, size_t count_max) {
  std::lock_guard lock(mutex_);
  std::vector<Json> events;
  while (!watch.initial.empty() && events.size() < count_max) {
    events.push_back(watch_event(watch, "ADDED", to_view(*watch.type, *watch.initial.front())));
    watch.initial.pop_front();
  }
  const ResourceType& type = watch.type->storage();
  if (type.epoch != watch.epoch) watch.ended = true;
  if (!watch.ended && !storage_.remembers(type, watch.position)) {
    ApiResponse gone = expired("too old resource version: " + std::to_string(watch.position) +
                               " (" + std::to_string(storage_.version()) + ")");
    events.push_back(watch_event(watch, "ERROR", std::move(gone.body)));
    watch.ended = true;
  }
  while (!watch.ended && events.size() < count_max) {
    const Change* change = storage_.next_change(type, watch.position);
    if (change == nullptr) {
      watch.position = storage_.version();
      watch.ended = !type.served && type.custom;  // the type is gone, and that was all of it
      break;
    }
    watch.position = change->version;
    if (std::optional<SelectedEvent> event = selected_event(watch, *change))
      events.push_back(watch_event(watch, event->kind, std::move(event->object)));
  }
  return events;
}

Json Api::bookmark(Watch& watch) {
  return watch_event(
      watch, "BOOKMARK",
      {{"kind", watch.type->kind},
       {"apiVersion", watch.type->api_version()},
       {"metadata",
        {{"resourceVersion", std::to_string(watch.position)}, {"creationTimestamp", nullptr}}}});
}

}  // namespace lockstep::local
