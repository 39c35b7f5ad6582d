#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "controller/loop/api_client.h"

namespace lockstep {

// An API client that answers when the test calls answer().
class FakeApi final : public ApiClient {
 public:
  struct Asked {
    ApiRequest request;
    Done done;
  };
  struct Watching {
    WatchRequest request;
    WatchHandler handler;
    bool is_open = true;
  };

  void send(ApiRequest request, Done done) override {
    asked.push_back({std::move(request), std::move(done)});
  }
  std::unique_ptr<WatchHandle> watch(WatchRequest request, WatchHandler handler) override {
    watches.push_back(std::make_shared<Watching>(Watching{std::move(request), std::move(handler)}));
    struct Handle : WatchHandle {
      explicit Handle(std::shared_ptr<Watching> watching) : watching(std::move(watching)) {}
      ~Handle() override { watching->is_open = false; }
      std::shared_ptr<Watching> watching;
    };
    return std::make_unique<Handle>(watches.back());
  }
  void answer(ApiReply reply) {
    Asked first = std::move(asked.front());
    asked.pop_front();
    first.done(std::move(reply));
  }

  std::deque<Asked> asked;
  std::vector<std::shared_ptr<Watching>> watches;
};

}  // namespace lockstep
