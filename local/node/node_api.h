#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "local/store/request.h"

namespace lockstep::local {

// Follows a collection while it exists.
class Feed {
 public:
  virtual ~Feed() = default;
  // Returns the next events, oldest first, at most `count_max`: {"type": ADDED|MODIFIED|DELETED,
  // "object": ...}. Objects that exist at the beginning are ADDED. Never blocks; empty if nothing
  // is new.
  virtual std::vector<Json> next_events(size_t count_max) = 0;
};

// The calls to an API server that the local node needs.
class NodeApi {
 public:
  virtual ~NodeApi() = default;
  // Handles any request except watches. Thread-safe; may block until the server answers.
  virtual ApiResponse handle(const ApiRequest& request) = 0;
  // `target` is the path of a collection ("/api/v1/pods"). `on_news` is called whenever
  // next_events() may have something, on any thread and without a lock. It must not block, and may
  // be called after the feed is destroyed.
  virtual std::unique_ptr<Feed> follow(const std::string& target,
                                       std::function<void()> on_news) = 0;
};

}  // namespace lockstep::local
