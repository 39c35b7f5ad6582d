#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "controller/loop/api_client.h"

namespace lockstep::sim {

// What a kube-apiserver stores, in memory: objects by kind and namespace/name, one growing
// resourceVersion, and the events since the last compaction. Answers at once; time, faults and
// delays are the World's.
class FakeStore {
 public:
  struct Event {
    int64_t version = 0;
    WatchEvent event{};
  };

  // Called before a write is stored; for invariants.
  std::function<void(const ApiRequest&, const Json* stored)> on_write;

  // `now`: RFC 3339, for creationTimestamp and the like.
  ApiReply serve(const ApiRequest& request, const std::string& now);
  // Events of a kind after `version`, matching the selector; false: they are compacted.
  bool events_since(const WatchRequest& request, int64_t version, std::vector<Event>& events) const;
  void compact() { compacted_ = version_; }

  // What kubelets and users do.
  Json* find(ResourceType type, const std::string& key);
  std::map<std::string, Json>& all(ResourceType type) { return objects_[std::string(type.plural)]; }
  void update(ResourceType type, const std::string& key, const std::function<void(Json&)>& change);
  void remove(ResourceType type, const std::string& key);
  Json create(ResourceType type, Json object, const std::string& now);
  int64_t version() const { return version_; }
  int64_t writes() const { return writes_; }

 private:
  ApiReply list(const ApiRequest& request);
  ApiReply replace(const ApiRequest& request, Json& stored);
  ApiReply erase(const ApiRequest& request, Json& stored, const std::string& now);
  void record(ResourceType type, WatchEventType kind, Json& object);

  std::map<std::string, std::map<std::string, Json>> objects_;
  std::map<std::string, std::vector<Event>> log_;
  int64_t version_ = 100;
  int64_t compacted_ = 0;
  int64_t uids_ = 0;
  int64_t writes_ = 0;
};

}  // namespace lockstep::sim
