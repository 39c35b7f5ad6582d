#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "controller/loop/api_client.h"

namespace lockstep::plan {

// An API client that answers when the test calls answer().
class FakeApi final : public loop::ApiClient {
 public:
  struct Asked {
    loop::ApiRequest request;
    Done done;
  };
  struct Watching {
    loop::WatchRequest request;
    loop::WatchHandler handler;
    bool is_open = true;
  };

  void send(loop::ApiRequest request, Done done) override {
    if (request.make_text) request.body = Json::parse(request.make_text());
    asked.push_back({std::move(request), std::move(done)});
  }
  std::unique_ptr<loop::WatchHandle> watch(loop::WatchRequest request,
                                           loop::WatchHandler handler) override {
    watches.push_back(std::make_shared<Watching>(Watching{std::move(request), std::move(handler)}));
    struct Handle : loop::WatchHandle {
      explicit Handle(std::shared_ptr<Watching> watching) : watching(std::move(watching)) {}
      ~Handle() override { watching->is_open = false; }
      std::shared_ptr<Watching> watching;
    };
    return std::make_unique<Handle>(watches.back());
  }
  void answer(loop::ApiReply reply) {
    Asked first = std::move(asked.front());
    asked.pop_front();
    first.done(std::move(reply));
  }

  std::deque<Asked> asked;
  std::vector<std::shared_ptr<Watching>> watches;
};

}  // namespace lockstep::plan
