#include "controller/loop/work_queue.h"

#include <algorithm>

namespace lockstep {

WorkQueue::WorkQueue(Timers& timers, WorkQueueOptions options, std::function<void()> on_ready)
    : timers_(timers), options_(options), on_ready_(std::move(on_ready)) {}

WorkQueue::~WorkQueue() {
  for (const auto& [key, id] : delayed_) timers_.cancel(id);
}

void WorkQueue::drop_timer(const std::string& key) {
  const auto timer = delayed_.find(key);
  if (timer == delayed_.end()) return;
  timers_.cancel(timer->second);
  delayed_.erase(timer);
}

void WorkQueue::add(const std::string& key) {
  if (working_.contains(key)) {
    again_.insert(key);
    return;
  }
  if (!waiting_.insert(key).second) return;
  order_.push_back(key);
  on_ready_();
}

void WorkQueue::add_at(const std::string& key, TimePoint when) {
  if (when <= timers_.now()) {
    add(key);
    return;
  }
  const auto timer = delayed_.find(key);
  if (timer != delayed_.end() && timer->second.first <= when) return;
  drop_timer(key);
  delayed_[key] = timers_.at(when, [this, key] {
    delayed_.erase(key);
    add(key);
  });
}

void WorkQueue::retry(const std::string& key, Duration minimum) {
  const int failures = failures_[key]++;
  Duration delay = options_.retry_first;
  for (int i = 0; i < failures && delay < options_.retry_max; ++i) delay *= 2;
  add_at(key, timers_.now() + std::max(minimum, std::min(delay, options_.retry_max)));
}

void WorkQueue::remove(const std::string& key) {
  drop_timer(key);
  failures_.erase(key);
  again_.erase(key);
  if (waiting_.erase(key) > 0) order_.erase(std::find(order_.begin(), order_.end(), key));
}

std::optional<std::string> WorkQueue::pop() {
  if (order_.empty()) return std::nullopt;
  std::string key = std::move(order_.front());
  order_.pop_front();
  waiting_.erase(key);
  working_.insert(key);
  return key;
}

void WorkQueue::done(const std::string& key) {
  working_.erase(key);
  if (again_.erase(key) > 0) add(key);
}

}  // namespace lockstep
