#include "agent/server/strand.h"

#include <future>
#include <utility>

namespace lockstep::server {

Strand::Strand(Around around) : around_(std::move(around)), thread_([this] { loop(); }) {}

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

Strand::Task Strand::next() {
  const std::lock_guard lock(mutex_);
  if (tasks_.empty()) return nullptr;
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  return task;
}

void Strand::loop() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stops_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
    }
    if (around_.begin) around_.begin();
    for (int i = 0; i < kTasksMax; ++i) {
      const Task task = next();
      if (!task) break;
      task();
    }
    if (around_.end) around_.end();
  }
}

}  // namespace lockstep::server
