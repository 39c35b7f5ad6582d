#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::server {

// A thread that runs tasks one after another, in the order in which they were posted. So the state
// of a server needs no locks, and remote calls arrive while it works. Thread-safe.
class Strand {
 public:
  using Task = std::function<void()>;
  static constexpr int kTasksMax = 16;
  // Called on the strand's thread before tasks that follow each other without a pause, at most
  // kTasksMax, and after them; may be empty.
  struct Around {
    Task begin;
    Task end;
  };
  Strand() : Strand(Around()) {}
  explicit Strand(Around around);
  // Runs what was posted.
  ~Strand();
  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;

  void post(Task task);
  // Posts the task and waits until it has run. Not on the strand's own thread.
  void run(const Task& task);

 private:
  void loop();
  // Returns an empty task if none waits.
  Task next();

  const Around around_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace lockstep::server
