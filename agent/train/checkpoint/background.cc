#include "agent/train/checkpoint/background.h"

#include <utility>

namespace lockstep::train {

void Background::start(Task task) {
  CHECK(!has_task());
  result_.reset();
  is_done_.store(false, std::memory_order_relaxed);
  thread_ = std::jthread([this, task = std::move(task)](std::stop_token stop) {
    result_ = task(std::move(stop));
    is_done_.store(true, std::memory_order_release);
  });
}

Status Background::wait() {
  CHECK(has_task());
  thread_.join();
  return *std::move(result_);
}

}  // namespace lockstep::train
