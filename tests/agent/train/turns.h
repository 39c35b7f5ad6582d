// Two threads that take turns, as a schedule says.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::train {

// Runs one of two threads at a time. Thread 0 begins; after schedule[0] of its steps thread 1 goes
// on, after schedule[1] of its steps thread 0, and so forth. At the end of the schedule each of
// them runs to its end.
class Turns {
 public:
  explicit Turns(std::vector<int64_t> schedule) : schedule_(std::move(schedule)) { deal(); }

  // Runs both to their ends.
  void run(const std::function<void()>& first, const std::function<void()>& second) {
    std::jthread other([&] { play(1, second); });
    play(0, first);
  }
  // Waits for the thread's turn to make its next step. Returns at once when both have ended.
  void wait(int thread) {
    std::unique_lock lock(mutex_);
    if (is_done_[0] && is_done_[1]) return;
    while (turn_ != thread || steps_ == 0) {
      if (turn_ == thread) pass(thread);
      changed_.wait(lock, [&] { return turn_ == thread; });
    }
    if (steps_ > 0) --steps_;
    ++taken_[thread];
  }
  int64_t taken(int thread) const { return taken_[thread]; }

 private:
  void play(int thread, const std::function<void()>& script) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return turn_ == thread; });
    }
    script();
    const std::lock_guard lock(mutex_);
    is_done_[thread] = true;
    turn_ = 1 - thread;
    steps_ = -1;
    changed_.notify_all();
  }
  void deal() { steps_ = next_ < schedule_.size() ? schedule_[next_++] : -1; }
  void pass(int thread) {
    deal();
    if (is_done_[1 - thread]) {
      steps_ = -1;
      return;
    }
    turn_ = 1 - thread;
    changed_.notify_all();
  }

  std::vector<int64_t> schedule_;
  size_t next_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
  int64_t steps_ = -1;  // that the thread may make in its turn; -1: all
  bool is_done_[2] = {false, false};
  int64_t taken_[2] = {0, 0};
};

}  // namespace lockstep::train
