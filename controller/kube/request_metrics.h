#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "common/base/histogram.h"

namespace lockstep::kube {

// Metrics of requests to the API server. A watch counts once, when the server, the network or the
// deadline ends it, not when it is dropped here. It has no duration.
struct RequestMetrics {
  // By verb (GET, LIST, POST, PUT, DELETE, WATCH) and HTTP code; code 0: no answer.
  std::map<std::pair<std::string, int>, uint64_t> requests;
  std::map<std::string, Histogram> seconds;  // by verb, from sending to the last byte
  Histogram waited_seconds{
      bounds_seconds(1e-3, 1000)};  // for the rate limit and for others' answers

  void count(const std::string& verb, int code) { ++requests[{verb, code}]; }
  void took(const std::string& verb, double duration) {
    seconds.try_emplace(verb, bounds_seconds(1e-3, 100)).first->second.observe(duration);
  }
};

}  // namespace lockstep::kube
