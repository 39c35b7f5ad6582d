#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "controller/loop/metrics.h"
#include "controller/loop/timers.h"

namespace lockstep::loop {

struct WorkQueueOptions {
  Duration retry_first = std::chrono::milliseconds(5);
  Duration retry_max = std::chrono::seconds(30);
};

// Order in the queue: a job that may have failed does not wait behind jobs that only made progress.
// kProgress waits like kRoutine, but rests longer (WorkQueue::rest).
enum class Urgency { kUrgent, kRoutine, kProgress };

// A queue of keys to look at. A key waits once, however often it is added, and is never handed out
// while it is in work: if it is added then, it waits again afterwards. Keys can be added for a
// later time, and with exponential delays after failures. Urgent keys go first, but after several
// of them in a row a routine one has its turn. Source of all but urgency: client-go,
// util/workqueue.
class WorkQueue {
 public:
  // `on_ready` is called, from a timer or from add(), when pop() may return a key.
  WorkQueue(Timers& timers, WorkQueueOptions options, std::function<void()> on_ready);
  ~WorkQueue();

  void add(const std::string& key, Urgency urgency = Urgency::kRoutine);
  // Adds the key at that time, or earlier if it is already due earlier.
  void add_at(const std::string& key, TimePoint when);
  // Adds the key after its next delay: first, 2 x first, ... max; at least `minimum`.
  void retry(const std::string& key, Duration minimum = Duration{0});
  // Until when work on a key waits, whenever it is added: routine work, and work because of
  // progress alone, which waits for as long or longer. Urgent work does not.
  struct Rest {
    TimePoint routine;
    TimePoint progress;
  };
  // Keeps a key whose work takes long from holding up the others.
  void rest(const std::string& key, const Rest& rest) {
    Rest& known = resting_.try_emplace(key, rest).first->second;
    known = {std::max(known.routine, rest.routine), std::max(known.progress, rest.progress)};
  }
  // The key's work succeeded: its delays start over.
  void forget(const std::string& key) { failures_.erase(key); }
  // The key is gone: keeps nothing of it that add() does not need.
  void drop(const std::string& key) {
    failures_.erase(key);
    resting_.erase(key);
  }

  // Returns the longest-waiting key among those that are at least as urgent as `least`, urgent ones
  // first. The caller works on it until done().
  std::optional<std::string> pop(Urgency least = Urgency::kRoutine);
  // Returns whether the key, which is in work, waited as an urgent one.
  bool is_urgent(const std::string& key) const;
  void done(const std::string& key);

  size_t size() const { return waiting_.size(); }
  size_t working() const { return working_.size(); }
  const QueueMetrics& metrics() const { return metrics_; }
  // Returns the sum and the maximum of the times since the keys in work were popped, in seconds.
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
  std::optional<TimePoint> rests_until(const std::string& key, Urgency urgency);

  Timers& timers_;
  WorkQueueOptions options_;
  std::function<void()> on_ready_;
  std::array<Lane, 2> lanes_;
  std::map<std::string, Place> waiting_;
  std::map<std::string, Work> working_;
  std::map<std::string, Urgency> again_;  // added while in work
  uint64_t last_number_ = 0;
  int urgent_in_a_row_ = 0;
  QueueMetrics metrics_;
  std::map<std::string, Timers::Id> delayed_;
  std::map<std::string, int> failures_;
  std::map<std::string, Rest> resting_;
};

}  // namespace lockstep::loop
