#include "controller/loop/fence.h"

namespace lockstep {

void Fence::send(ApiRequest request, Done done) {
  const bool is_read = request.verb == ApiVerb::kGet || request.verb == ApiVerb::kList;
  if (is_read || may_write_()) return api_.send(std::move(request), std::move(done));
  timers_.after(Duration{0}, [alive = std::weak_ptr(alive_), done = std::move(done)] {
    if (alive.expired()) return;
    done({.outcome = ApiOutcome::kUnavailable,
          .message = "[fence] not sent: the lease may be another's by now"});
  });
}

}  // namespace lockstep
