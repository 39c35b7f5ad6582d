#include "agent/server/strand.h"

#include <future>
#include <utility>

namespace lockstep::server {

Strand::Strand() : thread_([this] { loop(); }) {}

Strand::~Strand() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Strand::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void Strand::run(const Task& task) {
  std::promise<void> ran;
  post([&] {
    task();
    ran.set_value();
  });
  ran.get_future().wait();
}

void Strand::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stops_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace lockstep::server
