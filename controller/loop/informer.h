#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/random.h"
#include "controller/loop/api_client.h"
#include "controller/loop/retry.h"
#include "controller/loop/timers.h"

namespace lockstep {

// "namespace/name" of an object.
std::string object_key(const Json& object);

struct InformerOptions {
  ResourceType type{};
  std::string namespace_{};  // empty: all
  std::string label_selector{};
  int64_t page_size = 500;  // halved, down to one, while an answer is too large to be read
  // A watch is asked to end after a time between the two, so that not all end at once.
  int64_t watch_seconds_min = 240;
  int64_t watch_seconds_max = 300;
  Duration short_watch = std::chrono::seconds(1);  // shorter and without an event: an error
  RetryOptions retry{};
  // What is kept of an object, with its metadata's name, namespace, uid and resourceVersion; none:
  // all of it. Where nothing is left out, the same document.
  std::function<SharedJson(const SharedJson& object)> trim{};
};

// A copy of all objects of one kind that follows the server's: list in pages, then watch from the
// list's version; after a clean end watch again from the last version seen; after 410, and after an
// event that can't be read twice, list again; after errors wait longer and longer. Bookmarks move
// the version and nothing else. Events that are older than what is known (they repeat after a
// reconnect) are dropped. Where the server's versions have stepped back (an older copy of its
// storage was put in place) what it lists is all there is, however old.
// Single-threaded. Source of the rules: client-go, tools/cache/reflector.go.
class Informer {
 public:
  // One of the two is nullptr for an object that came or went. An object that was replaced by one
  // of the same name but another UID is reported as gone, then as new.
  using OnChange =
      std::function<void(const std::string& key, const Json* before, const Json* after)>;

  Informer(ApiClient& api, Timers& timers, Random& random, InformerOptions options,
           OnChange on_change, std::function<void()> on_synced);
  ~Informer();
  Informer(const Informer&) = delete;
  Informer& operator=(const Informer&) = delete;

  void start();
  // Lists anew: what was known may be old by as much as the watch lagged. Not synced until then.
  void relist();
  // The list that was asked for is complete.
  bool synced() const { return synced_; }
  const Json* find(const std::string& key) const;
  const std::map<std::string, SharedJson>& objects() const { return objects_; }

  // The reply to a write. Older than what is known, or of an object that the watch has already seen
  // deleted: dropped.
  void learn_written(const SharedJson& object);
  // The reply to a read that began because the object was missing here, or known to be behind.
  void learn_read(const SharedJson& object);
  // A read from the server did not find it, and the one that is known has that UID.
  void learn_absent(const std::string& key, const std::string& uid);

 private:
  void list(std::string continue_token);
  void on_page(const std::string& continue_token, ApiReply reply);
  void finish_list(const Json& page);
  void replace_all(const std::map<std::string, SharedJson>& listed);
  void watch();
  void on_events(std::vector<WatchEvent> events);
  void on_watch_end(ApiReply reply);
  void retry_later(bool relist, Duration minimum);
  SharedJson trimmed(const SharedJson& object) const;
  void put(const std::string& key, const SharedJson& object);
  void store(const std::string& key, const SharedJson& object);
  void erase(const std::string& key);

  ApiClient& api_;
  Timers& timers_;
  Random& random_;
  InformerOptions options_;
  OnChange on_change_;
  std::function<void()> on_synced_;
  Retry retry_;

  std::map<std::string, SharedJson> objects_;
  std::map<std::string, SharedJson> listed_;  // pages of the list under way
  int64_t page_size_;
  std::string version_;
  bool went_back_ = false;     // the server doesn't know of version_ yet
  std::string unreadable_at_;  // version_ when a watch's event couldn't be read
  bool synced_ = false;
  std::unique_ptr<WatchHandle> watch_;
  TimePoint watch_since_{};
  bool watch_had_events_ = false;
  std::optional<Timers::Id> timer_;
  // Of the list that is under way: answers to others are dropped.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep
