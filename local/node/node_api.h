#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "local/store/request.h"

namespace lockstep::local {

// Follows a collection for as long as it lives.
class Feed {
 public:
  virtual ~Feed() = default;
  // What is new, oldest first, at most `count_max`: {"type": ADDED|MODIFIED|DELETED, "object":
  // ...}, what was there at the beginning as ADDED. Never blocks; empty: nothing.
  virtual std::vector<Json> next_events(size_t count_max) = 0;
};

// What the local node needs of an API server.
class NodeApi {
 public:
  virtual ~NodeApi() = default;
  // Any request but watches. From any thread; may block for as long as a server needs to answer.
  virtual ApiResponse handle(const ApiRequest& request) = 0;
  // `target`: the path of a collection, "/api/v1/pods". `on_news` is called whenever next_events()
  // may have something, on some thread and without a lock; it must not block, and may be called
  // after the end of the feed.
  virtual std::unique_ptr<Feed> follow(const std::string& target,
                                       std::function<void()> on_news) = 0;
};

}  // namespace lockstep::local
