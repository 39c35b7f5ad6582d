#include "controller/loop/fence.h"

namespace lockstep {

void Fence::send(ApiRequest request, Done done) {
  const bool is_read = request.verb == ApiVerb::kGet || request.verb == ApiVerb::kList;
  if (is_read) return api_.send(std::move(request), std::move(done));
  if (may_write_()) {
    request.may_send = [this, alive = std::weak_ptr(alive_), own = std::move(request.may_send)] {
      return !alive.expired() && may_write_() && (!own || own());
    };
    return api_.send(std::move(request), std::move(done));
  }
  timers_.after(Duration{0}, [alive = std::weak_ptr(alive_), done = std::move(done)] {
    if (!alive.expired()) done(not_sent());
  });
}

}  // namespace lockstep
