#pragma once

#include <functional>

#include "controller/kube/http.h"

namespace lockstep::kube {

// The event loop of a test's clients, run by the calling thread.
class ClientLoop {
 public:
  ClientLoop() {
    [[maybe_unused]] static const bool started = [] {
      start_http_threads(4);
      return true;
    }();
  }

  // Runs until `done` holds. Has no time limit: ctest ends a test that hangs.
  void run_until(const std::function<bool()>& done) {
    while (!done()) {
      timers.run_due();
      mailbox.run();
      if (done()) return;
      mailbox.wait(timers.next());
    }
  }

  SystemClock clock;
  loop::Timers timers{clock};
  Mailbox mailbox;
};

}  // namespace lockstep::kube
