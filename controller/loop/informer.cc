#include "controller/loop/informer.h"

#include <algorithm>

#include "common/base/log.h"
#include "controller/loop/resource_version.h"

namespace lockstep::loop {
namespace {

const Json& metadata_of(const Json& object) {
  static const Json kNothing;
  const Json* metadata = find_member(object, "metadata");
  return metadata == nullptr ? kNothing : *metadata;
}

std::string version_of(const Json& object) {
  return string_or(metadata_of(object), "resourceVersion", "");
}

std::string uid_of(const Json& object) {
  return string_or(metadata_of(object), "uid", "");
}

bool is_older(const std::string& version, const std::string& than) {
  const auto order = compare_versions(version, than);
  return order && *order == std::strong_ordering::less;
}

bool is_same(const CachedObject& a, const CachedObject& b) {
  return a.uid() == b.uid() && a.version() == b.version();
}

// Returns whether an object of that UID and version is already known, or older than what is known.
bool is_stale(const CachedObject* known, const std::string& uid, const std::string& version) {
  if (known == nullptr) return false;
  return (known->uid() == uid && known->version() == version) ||
         is_older(version, known->version());
}

}  // namespace

std::string object_key(const Json& object) {
  const Json& metadata = metadata_of(object);
  return string_or(metadata, "namespace", "") + "/" + string_or(metadata, "name", "");
}

Informer::Informer(ApiClient& api, Timers& timers, Random& random, InformerOptions options,
                   OnChange on_change, std::function<void()> on_synced)
    : api_(api),
      timers_(timers),
      random_(random),
      options_(std::move(options)),
      on_change_(std::move(on_change)),
      on_synced_(std::move(on_synced)),
      retry_(options_.retry, random),
      page_size_(options_.page_size) {}

Informer::~Informer() {
  if (timer_) timers_.cancel(*timer_);
}

void Informer::start() {
  list("");
}

void Informer::relist() {
  alive_ = std::make_shared<bool>(true);
  watch_.reset();
  if (timer_) timers_.cancel(*timer_);
  timer_.reset();
  synced_ = false;
  list("");
}

const CachedObject* Informer::find(const std::string& key) const {
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : &found->second;
}

void Informer::list(std::string continue_token) {
  ApiRequest request{
      .verb = ApiVerb::kList, .type = options_.type, .namespace_ = options_.namespace_};
  request.query["limit"] = std::to_string(page_size_);
  if (!options_.label_selector.empty()) request.query["labelSelector"] = options_.label_selector;
  if (continue_token.empty()) {
    listed_.clear();
  } else {
    request.query["continue"] = continue_token;
  }
  api_.send(std::move(request), [this, continue_token = std::move(continue_token),
                                 alive = std::weak_ptr(alive_)](ApiReply reply) {
    if (!alive.expired()) on_page(continue_token, std::move(reply));
  });
}

void Informer::on_page(const std::string& continue_token, ApiReply reply) {
  if (reply.outcome == ApiOutcome::kUnreadable && page_size_ > 1) {
    page_size_ /= 2;
    log_info("requesting a list page again with fewer objects",
             {{"resource", options_.type.plural}, {"limit", page_size_}, {"error", reply.message}});
    list(continue_token);
    return;
  }
  if (!reply.ok()) {
    log_warning("a list failed", {{"resource", options_.type.plural},
                                  {"outcome", outcome_name(reply.outcome)},
                                  {"error", reply.message}});
    // A page that expired says nothing about the server.
    if (reply.outcome == ApiOutcome::kExpired) return list_again(reply);
    retry_later(true, reply.retry_after);
    if (options_.on_list_failed) options_.on_list_failed(reply);
    return;
  }
  page_size_ = std::min(page_size_ * 2, options_.page_size);
  const Json* items = find_member(reply.body, "items");
  if (items != nullptr && items->is_array()) {
    for (const Json& item : *items) listed_.insert_or_assign(object_key(item), kept(item));
  }
  std::string next = string_or(metadata_of(reply.body), "continue", "");
  if (!next.empty()) {
    list(std::move(next));
    return;
  }
  finish_list(reply.body);
}

void Informer::finish_list(const Json& page) {
  const std::string before = std::exchange(version_, version_of(page));
  const bool went_back = std::exchange(went_back_, false) || is_older(version_, before);
  unreadable_at_.clear();
  const std::map<std::string, CachedObject> listed = std::exchange(listed_, {});
  if (went_back) {
    replace_all(listed);
  } else {
    std::vector<std::string> vanished;
    for (const auto& [key, object] : objects_)
      if (!listed.contains(key) && !is_older(version_, object.version())) vanished.push_back(key);
    for (const std::string& key : vanished) erase(key);
    for (const auto& [key, object] : listed) put(key, object);
  }
  const bool first = !std::exchange(synced_, true);
  watch();
  if (first) on_synced_();
}

// The known objects are from a future that did not happen, so their versions mean nothing.
void Informer::replace_all(const std::map<std::string, CachedObject>& listed) {
  log_warning("the server's resource versions went back; replacing the cache",
              {{"resource", options_.type.plural}, {"version", version_}});
  ends_.clear();
  ends_before_.clear();
  std::vector<std::string> vanished;
  for (const auto& [key, object] : objects_)
    if (!listed.contains(key)) vanished.push_back(key);
  for (const std::string& key : vanished) erase(key);
  for (const auto& [key, object] : listed) {
    const CachedObject* known = find(key);
    if (known == nullptr || !is_same(*known, object)) store(key, object, object.json());
  }
}

void Informer::watch() {
  const int64_t span = options_.watch_seconds_max - options_.watch_seconds_min + 1;
  const int64_t seconds =
      options_.watch_seconds_min + static_cast<int64_t>(random_.below(static_cast<uint64_t>(span)));
  WatchRequest request{.type = options_.type, .namespace_ = options_.namespace_};
  request.query["resourceVersion"] = version_;
  request.query["allowWatchBookmarks"] = "true";
  request.query["timeoutSeconds"] = std::to_string(seconds);
  if (!options_.label_selector.empty()) request.query["labelSelector"] = options_.label_selector;
  watch_since_ = timers_.now();
  watch_had_events_ = false;
  watch_ = api_.watch(
      std::move(request),
      {.on_events = [this](std::vector<WatchEvent> events) { on_events(std::move(events)); },
       .on_end = [this](ApiReply reply) { on_watch_end(std::move(reply)); }});
}

void Informer::on_events(std::vector<WatchEvent> events) {
  watch_had_events_ = true;
  for (const WatchEvent& event : events) {
    const std::string version = version_of(event.object);
    if (!version.empty() && !is_older(version, version_)) version_ = version;
    if (event.type == WatchEventType::kBookmark) continue;
    const std::string key = object_key(event.object);
    if (event.type != WatchEventType::kDeleted) {
      put(key, event.object);
      continue;
    }
    note_end(key, version);
    // A repeated DELETED must not remove an object that was created since.
    const CachedObject* known = find(key);
    if (known != nullptr && known->uid() == uid_of(event.object)) erase(key);
  }
}

void Informer::on_watch_end(ApiReply reply) {
  // A callback of the handle makes this call, so the handle must outlive it.
  timers_.after(Duration{0}, [handle = std::shared_ptr<WatchHandle>(std::move(watch_))] {});
  note_health();
  if (reply.outcome == ApiOutcome::kExpired || reply.outcome == ApiOutcome::kTooLarge) {
    log_info("a watch expired; listing again", {{"resource", options_.type.plural}});
    went_back_ |= reply.outcome == ApiOutcome::kTooLarge;
    list_again(reply);
    return;
  }
  const bool was_short = !watch_had_events_ && timers_.now() - watch_since_ < options_.short_watch;
  if (reply.ok() && !was_short) {
    watch();
    return;
  }
  log_warning("a watch failed", {{"resource", options_.type.plural},
                                 {"outcome", outcome_name(reply.outcome)},
                                 {"error", reply.message}});
  const bool is_unreadable = reply.outcome == ApiOutcome::kUnreadable;
  const bool was_unreadable = unreadable_at_ == version_;
  unreadable_at_ = is_unreadable ? version_ : "";
  retry_later(is_unreadable && was_unreadable, reply.retry_after);
}

// Ends the back-off if the watch that just ended shows that the server works.
void Informer::note_health() {
  if (!watch_had_events_ && timers_.now() - watch_since_ < options_.healthy_watch) return;
  retry_.reset();
  waits_as_told_ = 0;
}

// Lists at once, unless that was done a moment ago: a server may answer every watch with 410.
void Informer::list_again(const ApiReply& reply) {
  const TimePoint now = timers_.now();
  if (listed_at_once_at_ && now - *listed_at_once_at_ < options_.healthy_watch) {
    retry_later(true, reply.retry_after);
    return;
  }
  listed_at_once_at_ = now;
  list("");
}

// Returns the delay before the next attempt. `told`: as long as the server asked to wait, or 0.
Duration Informer::next_delay(Duration told) {
  if (told > Duration{0} && waits_as_told_ < options_.waits_as_told_max) {
    ++waits_as_told_;
    // Not all clients come back at the same moment.
    return told + from_seconds(to_seconds(options_.retry.first) * random_.uniform());
  }
  return std::max(told, retry_.next(timers_.now()));
}

void Informer::retry_later(bool relist, Duration told) {
  timer_ = timers_.after(next_delay(told), [this, relist] {
    timer_.reset();
    if (relist) {
      list("");
    } else {
      watch();
    }
  });
}

SharedJson Informer::trimmed(const SharedJson& object) const {
  return options_.trim ? options_.trim(object) : object;
}

CachedObject Informer::kept(const SharedJson& object) const {
  return {trimmed(object), options_.packs};
}

// Most objects that come are known, and are not trimmed in vain.
void Informer::put(const std::string& key, const SharedJson& object) {
  if (is_stale(find(key), uid_of(object), version_of(object))) return;
  const SharedJson after = trimmed(object);
  store(key, CachedObject(after, options_.packs), after);
}

void Informer::put(const std::string& key, const CachedObject& object) {
  if (!is_stale(find(key), object.uid(), object.version())) store(key, object, object.json());
}

void Informer::store(const std::string& key, const CachedObject& object, const SharedJson& after) {
  const CachedObject* known = find(key);
  if (known != nullptr && known->uid() != object.uid()) erase(key);
  const auto [place, is_new] = objects_.try_emplace(key, object);
  const SharedJson before = is_new ? SharedJson() : place->second.json();
  if (!is_new) place->second = object;
  on_change_(key, is_new ? nullptr : &*before, &*after);
}

void Informer::erase(const std::string& key) {
  const auto place = objects_.find(key);
  if (place == objects_.end()) return;
  const SharedJson before = place->second.json();
  objects_.erase(place);
  on_change_(key, &*before, nullptr);
}

void Informer::learn_written(const SharedJson& object) {
  const std::string key = object_key(object);
  // An object that is not here and not beyond the watch's position was created and deleted since.
  if (objects_.contains(key) || is_older(version_, version_of(object))) put(key, object);
}

void Informer::learn_read(const SharedJson& object) {
  const std::string key = object_key(object);
  if (!has_ended_since(key, version_of(object))) put(key, object);
}

// A read may be answered later than the watch tells what came after it, but not for ever.
void Informer::note_end(const std::string& key, std::string version) {
  constexpr Duration kSpan = std::chrono::minutes(5);
  if (timers_.now() - ends_since_ >= kSpan) {
    ends_before_ = std::exchange(ends_, {});
    ends_since_ = timers_.now();
  }
  std::string& known = ends_[key];
  if (!is_older(version, known)) known = std::move(version);
}

bool Informer::has_ended_since(const std::string& key, const std::string& version) const {
  const auto is_later = [&](const std::map<std::string, std::string>& ends) {
    const auto end = ends.find(key);
    return end != ends.end() && is_older(version, end->second);
  };
  return is_later(ends_) || is_later(ends_before_);
}

void Informer::learn_absent(const std::string& key, const std::string& uid) {
  const CachedObject* known = find(key);
  if (known != nullptr && known->uid() == uid) erase(key);
}

}  // namespace lockstep::loop
