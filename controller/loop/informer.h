#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/random.h"
#include "controller/loop/api_client.h"
#include "controller/loop/cached_object.h"
#include "controller/loop/retry.h"
#include "controller/loop/timers.h"

namespace lockstep::loop {

// Returns "namespace/name" of an object.
std::string object_key(const Json& object);

struct InformerOptions {
  ResourceType type{};
  std::string namespace_{};  // empty: all
  std::string label_selector{};
  int64_t page_size = 500;  // halved, down to one, while an answer is too large to read
  // A watch is asked to end after a random time between the two, so that not all end together.
  int64_t watch_seconds_min = 240;
  int64_t watch_seconds_max = 300;
  Duration short_watch = std::chrono::seconds(1);  // a shorter one without an event is an error
  // A watch that had an event, or lived as long as this, shows that the server works: delays start
  // over. It is also the least time between two lists that no delay precedes.
  Duration healthy_watch = std::chrono::seconds(10);
  int waits_as_told_max = 10;  // in a row; then a server's Retry-After is only the least delay
  RetryOptions retry{};
  // Returns the part of an object to keep, including its metadata's name, namespace, uid and
  // resourceVersion. If it leaves nothing out, it returns the same document. Unset: keeps
  // everything.
  std::function<SharedJson(const SharedJson& object)> trim{};
  bool packs = false;  // keeps objects as text (CachedObject); for many that are rarely read
  // Called when a list failed, which is then repeated after a delay.
  std::function<void(const ApiReply& reply)> on_list_failed{};
};

// A copy of all objects of one kind that follows the server's. It lists them in pages, then watches
// from the list's version. Single-threaded.
// - After a clean end, it watches again from the last version seen.
// - After 410 it lists again at once. If 410 repeats within seconds, it backs off first.
// - If an event can't be read twice, it lists again.
// - After other errors, it backs off. A healthy watch ends the back-off.
// - If the server says how long to wait (429), it waits as long, and backs off only if that
//   repeats.
// - Bookmarks move the version and nothing else.
// - It drops events older than what is known, which repeat after a reconnect.
// - If the server's versions have stepped back (an older copy of its storage was restored), its
//   list replaces everything, however old.
// Source of the rules: client-go, tools/cache/reflector.go, and for Retry-After rest/with_retry.go.
// A server answers 429 and 410 when the definition of the kind was changed: apiextensions-apiserver
// then ends the watches and makes a new cache, which knows no older versions.
class Informer {
 public:
  // One of the two is nullptr for an object that appeared or vanished. If an object is replaced by
  // one with the same name but another UID, it is reported as gone, then as new.
  using OnChange =
      std::function<void(const std::string& key, const Json* before, const Json* after)>;

  Informer(ApiClient& api, Timers& timers, Random& random, InformerOptions options,
           OnChange on_change, std::function<void()> on_synced);
  ~Informer();
  Informer(const Informer&) = delete;
  Informer& operator=(const Informer&) = delete;

  void start();
  // Lists again, because what is known is as old as the watch's lag. Not synced until then.
  void relist();
  // Returns whether the requested list is complete.
  bool synced() const { return synced_; }
  const CachedObject* find(const std::string& key) const;
  const std::map<std::string, CachedObject>& objects() const { return objects_; }

  // Takes the reply to a write. Drops it if it is older than what is known, or if the watch has
  // already seen the object deleted.
  void learn_written(const SharedJson& object);
  // Takes the reply to a read that began because the object was missing here, or known to be stale.
  // Drops it if the watch has told a later end of the object meanwhile.
  void learn_read(const SharedJson& object);
  // Erases the object if the known one has that UID: a read from the server did not find it.
  void learn_absent(const std::string& key, const std::string& uid);

 private:
  void list(std::string continue_token);
  void on_page(const std::string& continue_token, ApiReply reply);
  void finish_list(const Json& page);
  void replace_all(const std::map<std::string, CachedObject>& listed);
  void watch();
  void on_events(std::vector<WatchEvent> events);
  void on_watch_end(ApiReply reply);
  void note_health();
  void list_again(const ApiReply& reply);
  void retry_later(bool relist, Duration told);
  Duration next_delay(Duration told);
  SharedJson trimmed(const SharedJson& object) const;
  CachedObject kept(const SharedJson& object) const;
  // Stores the object unless it is already known or older than what is known.
  void put(const std::string& key, const SharedJson& object);
  void put(const std::string& key, const CachedObject& object);
  // `after` is the object's document.
  void store(const std::string& key, const CachedObject& object, const SharedJson& after);
  void erase(const std::string& key);
  void note_end(const std::string& key, std::string version);
  bool has_ended_since(const std::string& key, const std::string& version) const;

  ApiClient& api_;
  Timers& timers_;
  Random& random_;
  InformerOptions options_;
  OnChange on_change_;
  std::function<void()> on_synced_;
  Retry retry_;

  std::map<std::string, CachedObject> objects_;
  std::map<std::string, CachedObject> listed_;  // pages of the list in progress
  int64_t page_size_;
  std::string version_;
  // Versions of the ends that the watch told lately, by key: those of the current span of time, and
  // those of the one before.
  std::map<std::string, std::string> ends_;
  std::map<std::string, std::string> ends_before_;
  TimePoint ends_since_{};
  bool went_back_ = false;     // the server does not know version_ yet
  std::string unreadable_at_;  // version_ when a watch's event couldn't be read
  int waits_as_told_ = 0;      // in a row
  std::optional<TimePoint> listed_at_once_at_;
  bool synced_ = false;
  std::unique_ptr<WatchHandle> watch_;
  TimePoint watch_since_{};
  bool watch_had_events_ = false;
  std::optional<Timers::Id> timer_;
  // Replaced by relist(), so that answers to earlier requests are dropped.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep::loop
