#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "controller/loop/timers.h"

namespace lockstep {

struct WorkQueueOptions {
  Duration retry_first = std::chrono::milliseconds(5);
  Duration retry_max = std::chrono::seconds(30);
};

// Keys that are to be looked at: each once however often it was added, never while it is being
// worked on (added meanwhile, it comes again afterwards), later if so wished, with exponential
// delays after failures. Source: client-go, util/workqueue.
class WorkQueue {
 public:
  // `on_ready` is called, from a timer or from add(), when pop() has become worth calling.
  WorkQueue(Timers& timers, WorkQueueOptions options, std::function<void()> on_ready);
  ~WorkQueue();

  void add(const std::string& key);
  // At that time, or earlier if it was already due earlier.
  void add_at(const std::string& key, TimePoint when);
  // After the key's next delay: first, 2 x first, ... max. At least `minimum`.
  void retry(const std::string& key, Duration minimum = Duration{0});
  // The key's work succeeded: its delays begin anew.
  void forget(const std::string& key) { failures_.erase(key); }
  // The key is gone for good.
  void remove(const std::string& key);

  // The longest waiting key; the caller works on it until done().
  std::optional<std::string> pop();
  void done(const std::string& key);

  size_t size() const { return order_.size(); }

 private:
  void drop_timer(const std::string& key);

  Timers& timers_;
  WorkQueueOptions options_;
  std::function<void()> on_ready_;
  std::deque<std::string> order_;
  std::set<std::string> waiting_;  // what is in order_
  std::set<std::string> working_;
  std::set<std::string> again_;  // added while it was worked on
  std::map<std::string, Timers::Id> delayed_;
  std::map<std::string, int> failures_;
};

}  // namespace lockstep
