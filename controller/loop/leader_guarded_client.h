#pragma once

#include <functional>
#include <memory>

#include "controller/loop/api_client.h"
#include "controller/loop/timers.h"

namespace lockstep::loop {

// An ApiClient for a process that may have lost the lease. It sends a write only if `may_write`
// holds now and, if the write has to wait for its turn, again then. Otherwise it answers
// not_sent(), and the write has no effect. A process that was paused resumes in the middle of a
// plan, and would hear of the end of its lease only after it has gone on. A process that gives up
// the lease waits for when_writes_done(), so that none of its writes comes after that. Reads and
// watches always pass. Keeps references to its arguments, which must outlive it.
class LeaderGuardedClient final : public ApiClient {
 public:
  LeaderGuardedClient(ApiClient& api, Timers& timers, std::function<bool()> may_write)
      : api_(api), timers_(timers), may_write_(std::move(may_write)) {}

  void send(ApiRequest request, Done done) override;
  // Calls `done` when every write that was sent has been answered; immediately if there is none.
  void when_writes_done(std::function<void()> done);
  std::unique_ptr<WatchHandle> watch(WatchRequest request, WatchHandler handler) override {
    return api_.watch(std::move(request), std::move(handler));
  }

 private:
  void answered();

  ApiClient& api_;
  Timers& timers_;
  std::function<bool()> may_write_;
  size_t open_ = 0;  // writes that were sent and not answered
  std::function<void()> on_writes_done_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep::loop
