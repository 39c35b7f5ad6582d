#include "controller/loop/leader_guarded_client.h"

#include <utility>

namespace lockstep::loop {

void LeaderGuardedClient::send(ApiRequest request, Done done) {
  const bool is_read = request.verb == ApiVerb::kGet || request.verb == ApiVerb::kList;
  if (is_read) return api_.send(std::move(request), std::move(done));
  if (may_write_()) {
    const auto is_out = std::make_shared<bool>(false);
    request.may_send = [this, is_out, alive = std::weak_ptr(alive_),
                        own = std::move(request.may_send)] {
      if (alive.expired() || !may_write_() || (own && !own())) return false;
      if (!std::exchange(*is_out, true)) ++open_;
      return true;
    };
    return api_.send(std::move(request), [this, is_out, alive = std::weak_ptr(alive_),
                                          done = std::move(done)](ApiReply reply) {
      if (*is_out && !alive.expired()) answered();
      done(std::move(reply));
    });
  }
  timers_.after(Duration{0}, [alive = std::weak_ptr(alive_), done = std::move(done)] {
    if (!alive.expired()) done(not_sent());
  });
}

void LeaderGuardedClient::answered() {
  if (--open_ == 0 && on_writes_done_) std::exchange(on_writes_done_, nullptr)();
}

void LeaderGuardedClient::when_writes_done(std::function<void()> done) {
  if (open_ == 0) return done();
  on_writes_done_ = std::move(done);
}

}  // namespace lockstep::loop
