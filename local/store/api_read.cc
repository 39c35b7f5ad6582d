// Lists and watches of Api.
#include <algorithm>
#include <charconv>

#include "local/store/api.h"
#include "local/store/event_view.h"
#include "local/store/table_view.h"

namespace lockstep::local {
namespace {

constexpr int64_t kWatchSecondsDefault = 1800;
constexpr int64_t kWatchSecondsMax = 24 * 3600;
constexpr int64_t kListMax = 100'000;

// A continue token, `<version>~<namespace>~<name>`: the version of the whole list, and the last
// object listed so far.
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

// Continues, from the newest version, a list whose own version is no longer kept.
constexpr int64_t kAnyVersion = -1;

ApiResponse too_old(ContinueToken token) {
  if (token.last.name.empty())
    return expired(
        "The requested resourceVersion is too old: the list of that version is no longer kept.");
  ApiResponse response = expired(
      "The continue token is too old for a consistent list. Start a new list without it, or "
      "continue with the token of this response, whose objects may have changed since the first "
      "page.");
  token.version = kAnyVersion;
  response.body["metadata"] = {{"continue", token.text()}};
  return response;
}

ApiResponse bad_list_option(std::string field, std::string message) {
  static const ResourceType kOptions{.group = "meta.k8s.io", .kind = "ListOptions"};
  return invalid_object(kOptions, "",
                        {{"FieldValueForbidden", std::move(message), std::move(field)}});
}

// Source: k8s.io/apimachinery, pkg/apis/meta/internalversion/validation.
std::optional<ApiResponse> check_list_options(const ApiPath& path) {
  constexpr char kMatch[] = "resourceVersionMatch";
  std::string match = path.parameter(kMatch);
  std::string version = path.parameter("resourceVersion");
  bool continues = !path.parameter("continue").empty();
  if (path.query.contains("sendInitialEvents"))
    return bad_list_option("sendInitialEvents",
                           "Forbidden: sendInitialEvents is forbidden for list");
  if (continues && !version.empty() && version != "0")
    return bad_request("specifying resource version is not allowed when using continue");
  if (match.empty()) return std::nullopt;
  if (match != "Exact" && match != "NotOlderThan")
    return bad_list_option(kMatch, "Unsupported value: " + dump_json(match) +
                                       ": supported values: \"Exact\", \"NotOlderThan\"");
  if (version.empty())
    return bad_list_option(kMatch,
                           "Forbidden: resourceVersionMatch is forbidden unless "
                           "resourceVersion is provided");
  if (continues)
    return bad_list_option(
        kMatch, "Forbidden: resourceVersionMatch is forbidden when continue is provided");
  if (match == "Exact" && version == "0")
    return bad_list_option(
        kMatch, "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
  return std::nullopt;
}

ObjectKey key_of(const Json& object) {
  const Json& metadata = metadata_of(object);
  return {string_or(metadata, "namespace", ""), string_or(metadata, "name", "")};
}

struct SelectedEvent {
  std::string_view kind;
  Json object;
};

// Returns the event of a change for a watch with a selector. ADDED: an object enters the selection;
// DELETED: it leaves. nullopt if the change does not concern the watch.
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

// Returns a page with the first `room` selected objects. `objects` is the rest of the list.
ApiResponse page_of(const ApiPath& path, const Selector& selector,
                    const std::vector<ObjectPtr>& objects, int64_t version, int64_t room) {
  Json metadata = {{"resourceVersion", std::to_string(version)}};
  Json items = Json::array();
  for (size_t i = 0; i < objects.size(); ++i) {
    if (!selector.matches(*objects[i])) continue;
    if (room-- == 0) {
      metadata["continue"] = ContinueToken{version, key_of(items.back())}.text();
      if (selector.selects_all()) metadata["remainingItemCount"] = objects.size() - i;
      break;
    }
    items.push_back(to_view(*path.type, *objects[i]));
  }
  return {200,
          {{"kind", path.type->list_name()},
           {"apiVersion", path.type->api_version()},
           {"metadata", std::move(metadata)},
           {"items", std::move(items)}}};
}

// Checks the options that say where a watch begins.
std::optional<ApiResponse> check_watch_options(const ApiPath& path) {
  std::string match = path.parameter("resourceVersionMatch");
  bool initial = path.query.contains("sendInitialEvents");
  if (!initial && !match.empty())
    return bad_list_option("resourceVersionMatch",
                           "Forbidden: resourceVersionMatch is forbidden for watch unless "
                           "sendInitialEvents is provided");
  if (initial && match != "NotOlderThan")
    return bad_list_option("resourceVersionMatch",
                           "Forbidden: sendInitialEvents requires setting resourceVersionMatch to "
                           "NotOlderThan");
  return std::nullopt;
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
  if (auto error = check_list_options(path)) return *error;
  int64_t version = storage_.version();
  if (asked->value_or(0) > version) return version_too_large(**asked, version);
  if (path.parameter("resourceVersionMatch") == "Exact") version = asked->value_or(version);

  ContinueToken token;
  if (std::string text = path.parameter("continue"); !text.empty()) {
    std::optional<ContinueToken> parsed = ContinueToken::parse(text);
    if (!parsed || parsed->version > version) return bad_request("continue key is not valid");
    token = *parsed;
    if (token.version != kAnyVersion) version = token.version;
  }
  Result<std::vector<ObjectPtr>> objects =
      storage_.list_at(type, path.namespace_, version, token.last);
  if (!objects.ok()) return too_old(token);
  int64_t room = limit->value_or(0) > 0 ? std::min(**limit, kListMax) : kListMax;
  return page_of(path, *selector, *objects, version, room);
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
  if (!is_acceptable(request.accept)) return not_acceptable();
  const ResourceType& type = path->type->storage();
  Result<Selector> selector =
      Selector::parse(type, path->parameter("labelSelector"), path->parameter("fieldSelector"));
  Result<std::optional<int64_t>> from = path->number("resourceVersion");
  Result<std::optional<int64_t>> timeout = path->number("timeoutSeconds");
  if (!selector.ok()) return bad_request(selector.error().message);
  if (!from.ok()) return bad_request(from.error().message);
  if (!timeout.ok()) return bad_request(timeout.error().message);
  if (auto error = check_watch_options(*path)) return *error;
  int64_t version = storage_.version();
  if (from->value_or(0) > version) return version_too_large(**from, version);
  Watch watch;
  watch.type = path->type;
  watch.epoch = type.epoch;
  watch.namespace_ = path->namespace_;
  watch.selector = *std::move(selector);
  Result<View> view = wanted_view(request.accept, *path);
  if (!view.ok()) return bad_request(view.error().message);
  watch.view = *view;
  watch.bookmarks = path->flag("allowWatchBookmarks");
  watch.timeout_seconds = std::min(timeout->value_or(kWatchSecondsDefault), kWatchSecondsMax);
  if (watch.timeout_seconds == 0) watch.timeout_seconds = kWatchSecondsDefault;
  bool sends_initial = path->flag("sendInitialEvents");
  bool only_new = path->query.contains("sendInitialEvents") && !sends_initial;
  watch.send_initial_bookmark = sends_initial && watch.bookmarks;
  watch.position = only_new && !from->has_value() ? version : from->value_or(0);
  if (sends_initial || (watch.position == 0 && !only_new)) {  // begin with existing objects
    for (const ObjectPtr& object : storage_.list(type, watch.namespace_)) {
      if (watch.selector.matches(*object)) watch.initial.push_back(object);
    }
    watch.position = version;
  }
  return watch;
}

Json Api::watch_event(Watch& watch, std::string_view kind, Json object) const {
  if (kind != "ERROR") {
    object =
        in_view(*watch.type, std::move(object), watch.view, !watch.has_headers, clock_.wall_now());
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
  if (watch.initial.empty() && watch.send_initial_bookmark) {
    events.push_back(bookmark_of(watch));
    watch.send_initial_bookmark = false;
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
      watch.ended = !type.served && type.custom;  // the type is gone and all its events were sent
      break;
    }
    watch.position = change->version;
    if (std::optional<SelectedEvent> event = selected_event(watch, *change))
      events.push_back(watch_event(watch, event->kind, std::move(event->object)));
  }
  return events;
}

Json Api::bookmark(Watch& watch) {
  std::lock_guard lock(mutex_);
  return bookmark_of(watch);
}

Json Api::bookmark_of(Watch& watch) const {
  Json metadata = {{"resourceVersion", std::to_string(watch.position)},
                   {"creationTimestamp", nullptr}};
  if (watch.send_initial_bookmark)
    metadata["annotations"] = {{"k8s.io/initial-events-end", "true"}};
  return watch_event(watch, "BOOKMARK",
                     {{"kind", watch.type->kind},
                      {"apiVersion", watch.type->api_version()},
                      {"metadata", std::move(metadata)}});
}

}  // namespace lockstep::local
