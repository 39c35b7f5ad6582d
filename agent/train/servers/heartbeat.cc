#include "agent/train/servers/heartbeat.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace lockstep::train {
namespace {

constexpr auto kInterval = std::chrono::seconds(1);

void beat_until(const std::stop_token& stop, CollectiveBoard& board) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    board.beat();
    stopped.wait_for(lock, stop, kInterval, [] { return false; });
  }
}

}  // namespace

Heartbeat::Heartbeat(CollectiveBoard* board) {
  if (board == nullptr) return;
  thread_ = std::jthread([board](const std::stop_token& stop) { beat_until(stop, *board); });
}

}  // namespace lockstep::train
