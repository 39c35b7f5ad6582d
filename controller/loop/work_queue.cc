#include "controller/loop/work_queue.h"

#include <algorithm>

namespace lockstep::loop {

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

void WorkQueue::add(const std::string& key, Urgency urgency) {
  if (working_.contains(key)) {
    const auto again = again_.emplace(key, urgency).first;
    again->second = std::min(again->second, urgency);
    return;
  }
  if (const auto until = rests_until(key, urgency)) {
    add_at(key, *until);
    return;
  }
  urgency = std::min(urgency, Urgency::kRoutine);
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) {
    waiting_[key] = {urgency, ++last_number_, timers_.now()};
    lane(urgency)[last_number_] = key;
    ++metrics_.adds;
    on_ready_();
  } else if (urgency < found->second.urgency) {
    Place& place = found->second;
    lane(place.urgency).erase(place.number);
    place.urgency = urgency;
    lane(urgency)[place.number] = key;
    on_ready_();
  }
}

std::optional<TimePoint> WorkQueue::rests_until(const std::string& key, Urgency urgency) {
  if (urgency == Urgency::kUrgent) return std::nullopt;
  const auto rest = resting_.find(key);
  if (rest == resting_.end()) return std::nullopt;
  const TimePoint now = timers_.now();
  const Rest& rests = rest->second;
  const TimePoint until = urgency == Urgency::kRoutine ? rests.routine : rests.progress;
  if (now < until) return until;
  if (now >= rests.progress) resting_.erase(rest);
  return std::nullopt;
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
  ++metrics_.retries;
  Duration delay = options_.retry_first;
  for (int i = 0; i < failures && delay < options_.retry_max; ++i) delay *= 2;
  add_at(key, timers_.now() + std::max(minimum, std::min(delay, options_.retry_max)));
}

WorkQueue::Lane* WorkQueue::next_lane(Urgency least) {
  constexpr int kUrgentInARowMax = 15;
  Lane& urgent = lane(Urgency::kUrgent);
  Lane& routine = lane(Urgency::kRoutine);
  const bool is_routines_turn = urgent.empty() || urgent_in_a_row_ >= kUrgentInARowMax;
  if (least == Urgency::kRoutine && is_routines_turn && !routine.empty()) {
    urgent_in_a_row_ = 0;
    return &routine;
  }
  if (urgent.empty()) return nullptr;
  ++urgent_in_a_row_;
  return &urgent;
}

std::optional<std::string> WorkQueue::pop(Urgency least) {
  Lane* from = next_lane(least);
  if (from == nullptr) return std::nullopt;
  std::string key = std::move(from->begin()->second);
  from->erase(from->begin());
  const auto place = waiting_.find(key);
  metrics_.queue_seconds.observe(to_seconds(timers_.now() - place->second.since));
  working_[key] = {place->second.urgency, timers_.now()};
  waiting_.erase(place);
  return key;
}

bool WorkQueue::is_urgent(const std::string& key) const {
  const auto work = working_.find(key);
  return work != working_.end() && work->second.urgency == Urgency::kUrgent;
}

void WorkQueue::done(const std::string& key) {
  if (const auto work = working_.find(key); work != working_.end()) {
    metrics_.work_seconds.observe(to_seconds(timers_.now() - work->second.since));
    working_.erase(work);
  }
  const auto again = again_.find(key);
  if (again == again_.end()) return;
  const Urgency urgency = again->second;
  again_.erase(again);
  add(key, urgency);
}

std::pair<double, double> WorkQueue::unfinished_seconds() const {
  double sum = 0;
  double longest = 0;
  for (const auto& [key, work] : working_) {
    const double seconds = to_seconds(timers_.now() - work.since);
    sum += seconds;
    longest = std::max(longest, seconds);
  }
  return {sum, longest};
}

}  // namespace lockstep::loop
