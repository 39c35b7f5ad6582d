#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "local/node/api_caller.h"

namespace lockstep::local {

struct EventRecorderOptions {
  size_t remembered_max = 4096;  // events whose repetitions are counted; rate-limited objects
  // Rate limit per object: a burst, then one event per `refill`.
  int64_t burst = 25;
  Duration refill = std::chrono::minutes(5);
};

// Writes events like kubelet and kube-scheduler: a repetition increments the count of the first
// event, and events about one object are rate-limited. Not thread-safe.
class EventRecorder {
 public:
  // `api` and `clock` outlive the recorder.
  EventRecorder(ApiCaller& api, const Clock& clock, uint64_t seed,
                const EventRecorderOptions& options = {})
      : api_(api), clock_(clock), options_(options), seed_(seed) {}

  struct Source {
    std::string component;  // kubelet, default-scheduler
    std::string host;
  };
  struct About {
    std::string kind;
    std::string namespace_;  // empty: cluster-scoped
    std::string name;
    std::string uid;
    std::string field_path;  // spec.containers{x}
  };
  void normal(const Source& source, const About& about, std::string_view reason,
              const std::string& message) {
    record(source, about, "Normal", reason, message);
  }
  void warning(const Source& source, const About& about, std::string_view reason,
               const std::string& message) {
    record(source, about, "Warning", reason, message);
  }
  // Drops the state of an object that is gone.
  void forget(const std::string& uid);

 private:
  using Order = std::list<std::string>;  // keys, oldest first
  struct Series {
    std::string target;
    int64_t count = 0;
    Order::iterator place;
  };
  struct Bucket {
    double tokens = 0;
    TimePoint filled{};
    Order::iterator place;
  };

  void record(const Source& source, const About& about, const char* type, std::string_view reason,
              const std::string& message);
  bool take_token(const std::string& uid);
  void create(const Source& source, const About& about, const char* type, std::string_view reason,
              const std::string& message, const std::string& key);

  ApiCaller& api_;
  const Clock& clock_;
  const EventRecorderOptions options_;
  uint64_t seed_;
  uint64_t written_ = 0;
  std::map<std::string, Series> series_;  // the key begins with the object's UID
  Order series_order_;
  std::map<std::string, Bucket> buckets_;  // by UID
  Order bucket_order_;
};

}  // namespace lockstep::local
