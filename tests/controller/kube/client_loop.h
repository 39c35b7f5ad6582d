#pragma once

#include <functional>

#include "controller/kube/http.h"

namespace lockstep {

// The thread that the clients of a test live on.
class ClientLoop {
 public:
  ClientLoop() {
    [[maybe_unused]] static const bool started = [] {
      start_http_threads(4);
      return true;
    }();
  }

  // Until it holds; a test that waits for ever is ended by ctest.
  void run_until(const std::function<bool()>& done) {
    while (!done()) {
      timers.run_due();
      mailbox.run();
      if (done()) return;
      mailbox.wait(timers.next());
    }
  }

  SystemClock clock;
  Timers timers{clock};
  Mailbox mailbox;
};

}  // namespace lockstep
