#include "agent/train/stop_signal.h"

#include <atomic>
#include <csignal>

namespace lockstep::train {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void request_stop(int) {
  stop_requested.store(true);
}

}  // namespace

void StopSignal::arm() {
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

void StopSignal::disarm() {
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
}

bool StopSignal::requested() {
  return stop_requested.load();
}

}  // namespace lockstep::train
