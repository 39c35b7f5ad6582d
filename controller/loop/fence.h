#pragma once

#include <functional>
#include <memory>

#include "controller/loop/api_client.h"
#include "controller/loop/timers.h"

namespace lockstep {

// The API of a process that may lead no longer: a write is sent if `may_write` holds at that
// moment, and again when its turn has come where it had to wait; if not, it is answered as
// not_sent() and has no effect. Who stood still wakes up in the
// middle of a plan, and would hear of the end of its lease after having gone on with it. Who gives
// the lease up waits until when_quiet(), for its last words must not come after it. Reads and
// watches always pass. References are kept and must outlive it.
class Fence final : public ApiClient {
 public:
  Fence(ApiClient& api, Timers& timers, std::function<bool()> may_write)
      : api_(api), timers_(timers), may_write_(std::move(may_write)) {}

  void send(ApiRequest request, Done done) override;
  // Now, or as soon as every write that went out has been answered.
  void when_quiet(std::function<void()> done);
  std::unique_ptr<WatchHandle> watch(WatchRequest request, WatchHandler handler) override {
    return api_.watch(std::move(request), std::move(handler));
  }

 private:
  void answered();

  ApiClient& api_;
  Timers& timers_;
  std::function<bool()> may_write_;
  size_t open_ = 0;  // writes that went out and were not answered
  std::function<void()> on_quiet_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep
