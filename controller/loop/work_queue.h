#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "controller/loop/metrics.h"
#include "controller/loop/timers.h"

namespace lockstep {

struct WorkQueueOptions {
  Duration retry_first = std::chrono::milliseconds(5);
  Duration retry_max = std::chrono::seconds(30);
};

// What waits behind others: a job that may have failed isn't kept waiting by those that only made
// progress.
enum class Urgency { kUrgent, kRoutine };

// Keys that are to be looked at: each once however often it was added, never while it is being
// worked on (added meanwhile, it comes again afterwards), later if so wished, with exponential
// delays after failures. Urgent ones first, but after so many of them in a row a routine one.
// Source of all but urgency: client-go, util/workqueue.
class WorkQueue {
 public:
  // `on_ready` is called, from a timer or from add(), when pop() has become worth calling.
  WorkQueue(Timers& timers, WorkQueueOptions options, std::function<void()> on_ready);
  ~WorkQueue();

  void add(const std::string& key, Urgency urgency = Urgency::kRoutine);
  // At that time, or earlier if it was already due earlier.
  void add_at(const std::string& key, TimePoint when);
  // After the key's next delay: first, 2 x first, ... max. At least `minimum`.
  void retry(const std::string& key, Duration minimum = Duration{0});
  // The key's work succeeded: its delays begin anew.
  void forget(const std::string& key) { failures_.erase(key); }

  // The longest waiting key of those that are at least so urgent; the caller works on it until
  // done().
  std::optional<std::string> pop(Urgency least = Urgency::kRoutine);
  // Of a key in work: whether it was waiting as an urgent one.
  bool is_urgent(const std::string& key) const;
  void done(const std::string& key);

  size_t size() const { return waiting_.size(); }
  size_t working() const { return working_.size(); }
  const QueueMetrics& metrics() const { return metrics_; }
  // The sum and the longest of the times since the keys in work were popped, in seconds.
  std::pair<double, double> unfinished_seconds() const;

 private:
  struct Place {  // in its lane
    Urgency urgency;
    uint64_t number;
    TimePoint since;
  };
  struct Work {
    Urgency urgency;
    TimePoint since;
  };
  using Lane = std::map<uint64_t, std::string>;  // by number, which grows

  Lane& lane(Urgency urgency) { return lanes_[static_cast<size_t>(urgency)]; }
  Lane* next_lane(Urgency least);
  void drop_timer(const std::string& key);

  Timers& timers_;
  WorkQueueOptions options_;
  std::function<void()> on_ready_;
  std::array<Lane, 2> lanes_;
  std::map<std::string, Place> waiting_;
  std::map<std::string, Work> working_;
  std::map<std::string, Urgency> again_;  // added while it was worked on
  uint64_t last_number_ = 0;
  int urgent_in_a_row_ = 0;
  QueueMetrics metrics_;
  std::map<std::string, Timers::Id> delayed_;
  std::map<std::string, int> failures_;
};

}  // namespace lockstep
