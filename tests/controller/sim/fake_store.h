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

// The storage of a kube-apiserver, in memory: objects by kind and namespace/name, one growing
// resourceVersion, and all events since the last compaction. Replies immediately and without
// faults; World and Connection add those. Objects are never changed, only replaced.
class FakeStore {
 public:
  using Object = std::shared_ptr<const Json>;
  using Objects = std::map<std::string, Object>;
  struct Event {
    int64_t version = 0;
    loop::WatchEventType type{};
    Object object;
    Object before;  // null for ADDED
  };

  // Called after every change, whether by a request or not.
  std::function<void(loop::ResourceType, const Event&)> on_change;
  // Called before a request of `sender` changes something.
  std::function<void(const loop::ApiRequest&, const Json* stored, std::string_view sender)>
      on_write;

  // Returns the UID of a new object. Unset: numbers in the order of creation.
  std::function<std::string(const std::string& key)> make_uid;

  // Serves one request. Takes it by value because it moves the body into the store.
  loop::ApiReply serve(loop::ApiRequest request, WallTime now, std::string_view sender);
  // Appends the events after `version` as a watch with that selector sees them. Returns false if
  // `version` was compacted.
  bool events_since(const loop::WatchRequest& request, int64_t version,
                    std::vector<Event>& events) const;
  void compact();

  // The operations of kubelets, the garbage collector and users.
  const Json* find(loop::ResourceType type, const std::string& key) const;
  Object find_shared(loop::ResourceType type, const std::string& key) const;
  const Objects& all(loop::ResourceType type) const;
  // Increments the generation if a job's spec changes.
  void update(loop::ResourceType type, const std::string& key,
              const std::function<void(Json&)>& change);
  // Deletes as a DELETE request does: a pod on a node gets its grace period (0: none), and
  // finalizers keep the object.
  void mark_deleted(loop::ResourceType type, const std::string& key, WallTime now,
                    int64_t grace_seconds);
  void remove(loop::ResourceType type, const std::string& key);
  const Json& create(loop::ResourceType type, Json object, WallTime now);
  int64_t version() const { return version_; }

 private:
  struct Kind {
    Objects objects;
    std::vector<Event> log;  // bounded: the oldest events are dropped
    int64_t forgotten = 0;   // version of the newest dropped event
  };
  Kind& kind(loop::ResourceType type) { return kinds_[type.plural]; }
  const Kind& kind(loop::ResourceType type) const;
  static loop::ApiReply page_of(const Objects& objects, const loop::ApiRequest& request,
                                int64_t version);
  loop::ApiReply create(loop::ApiRequest& request, WallTime now, std::string_view sender);
  loop::ApiReply replace(loop::ApiRequest& request, const Object& stored, std::string_view sender);
  void replace_status(loop::ResourceType type, const Object& before, Json status);
  loop::ApiReply erase(const loop::ApiRequest& request, const Json& stored, WallTime now,
                       std::string_view sender);
  void record(loop::ResourceType type, loop::WatchEventType event, Json object, Object before);

  std::map<std::string_view, Kind> kinds_;
  int64_t version_ = 100;
  int64_t compacted_ = 0;
  int64_t uids_ = 0;
};

// Returns whether the request must not be persisted.
bool is_dry_run(const loop::ApiRequest& request);
const Json& member(const Json& object, std::string_view key);
std::string uid_of(const Json& object);
bool is_terminating(const Json& object);
// Returns whether the pod has not ended and is not being deleted.
bool is_live_pod(const Json& pod);

}  // namespace lockstep::sim
