#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "controller/loop/api_client.h"

namespace lockstep::sim {

// What a kube-apiserver stores, in memory: objects by kind and namespace/name, one growing
// resourceVersion, and all events since the last compaction. Answers at once and without faults;
// those are the connection's. Objects are never changed, only replaced.
class FakeStore {
 public:
  using Object = std::shared_ptr<const Json>;
  using Objects = std::map<std::string, Object>;
  struct Event {
    int64_t version = 0;
    WatchEventType type{};
    Object object;
    Object before;  // null for ADDED
  };

  // After every change, whoever made it.
  std::function<void(ResourceType, const Event&)> on_change;
  // Before a request of that sender changes something.
  std::function<void(const ApiRequest&, const Json* stored, std::string_view sender)> on_write;

  // A request is served once: what it brings along is moved.
  ApiReply serve(ApiRequest request, WallTime now, std::string_view sender);
  // Events of a kind after `version` as a watch with that selector has them; false: compacted.
  bool events_since(const WatchRequest& request, int64_t version, std::vector<Event>& events) const;
  void compact();

  // What kubelets, the garbage collector and users do.
  const Json* find(ResourceType type, const std::string& key) const;
  Object find_shared(ResourceType type, const std::string& key) const;
  const Objects& all(ResourceType type) const;
  // A changed spec makes another generation.
  void update(ResourceType type, const std::string& key, const std::function<void(Json&)>& change);
  // As a DELETE does: a pod on a node ends within its grace period (0: at once), finalizers hold.
  void mark_deleted(ResourceType type, const std::string& key, WallTime now, int64_t grace_seconds);
  void remove(ResourceType type, const std::string& key);
  const Json& create(ResourceType type, Json object, WallTime now);
  int64_t version() const { return version_; }

 private:
  struct Kind {
    Objects objects;
    std::vector<Event> log;  // bounded: the oldest are forgotten
    int64_t forgotten = 0;   // the version of the newest of those
  };
  Kind& kind(ResourceType type) { return kinds_[type.plural]; }
  const Kind& kind(ResourceType type) const;
  static ApiReply page_of(const Objects& objects, const ApiRequest& request, int64_t version);
  ApiReply create(ApiRequest& request, WallTime now, std::string_view sender);
  ApiReply replace(ApiRequest& request, const Object& stored, std::string_view sender);
  void replace_status(ResourceType type, const Object& before, Json status);
  ApiReply erase(const ApiRequest& request, const Json& stored, WallTime now,
                 std::string_view sender);
  void record(ResourceType type, WatchEventType event, Json object, Object before);

  std::map<std::string_view, Kind> kinds_;
  int64_t version_ = 100;
  int64_t compacted_ = 0;
  int64_t uids_ = 0;
};

// Carried out but for keeping it.
bool is_dry_run(const ApiRequest& request);
const Json& member(const Json& object, std::string_view key);
std::string uid_of(const Json& object);
bool is_terminating(const Json& object);
// Neither ended nor being deleted.
bool is_live_pod(const Json& pod);

}  // namespace lockstep::sim
