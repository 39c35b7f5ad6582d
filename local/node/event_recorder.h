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
  size_t remembered_max = 4096;  // events that a repetition is counted in
  // Of one object: so many at once, and then one in this time.
  int64_t burst = 25;
  Duration refill = std::chrono::minutes(5);
};

// Writes events as kubelet and kube-scheduler do: what is said again is counted, not said twice,
// and an object about which too much is said is not spoken of for a while. Not thread-safe.
class EventRecorder {
 public:
  // `api` and `clock` outlive it.
  EventRecorder(ApiCaller& api, const Clock& clock, uint64_t seed,
                const EventRecorderOptions& options = {})
      : api_(api), clock_(clock), options_(options), seed_(seed) {}

  struct Source {
    std::string component;  // kubelet, default-scheduler
    std::string host;
  };
  struct About {
    std::string kind;
    std::string namespace_;  // empty: an object of the cluster
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
  // The object is gone: nothing is said again of it.
  void forget(const std::string& uid);
  // How many events a repetition would be counted in.
  size_t remembered() const { return series_.size(); }

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
  bool may_speak(const std::string& uid);
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
