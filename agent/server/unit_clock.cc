#include "agent/server/unit_clock.h"

#include <algorithm>

#include "common/base/check.h"

namespace lockstep::server {

Status check_consistency(const Consistency& consistency, size_t workers) {
  if (consistency.staleness > 0 && consistency.kind != ConsistencyKind::kBoundedStaleness) {
    return invalid("[server] staleness is an option of boundedStaleness", Blame::kConfig);
  }
  if (consistency.backup_workers == 0) return {};
  if (consistency.kind != ConsistencyKind::kSynchronous || consistency.backup_workers >= workers) {
    return invalid("[server] expected fewer backup workers than the " + std::to_string(workers) +
                       " workers, with synchronous consistency, got " +
                       std::to_string(consistency.backup_workers),
                   Blame::kConfig);
  }
  return {};
}

UnitClock::UnitClock(const Consistency& consistency, std::span<const uint32_t> workers,
                     uint64_t first)
    : consistency_(consistency), step_(first), highest_(first) {
  CHECK(!workers.empty());
  for (const uint32_t worker : workers) clocks_[worker] = first;
}

Status UnitClock::check_worker(uint32_t worker) const {
  if (clocks_.contains(worker)) return {};
  return conflict("[server] rank " + std::to_string(worker) + " is no worker of this view");
}

bool UnitClock::is_within_bound(uint64_t clock) const {
  if (consistency_.kind != ConsistencyKind::kBoundedStaleness) return true;
  const uint64_t slowest_clock = slowest().clock;
  return clock <= slowest_clock || clock - slowest_clock <= consistency_.staleness;
}

Result<UnitClock::Verdict> UnitClock::judge_push(uint32_t worker, uint64_t clock) const {
  TRY(check_worker(worker));
  const uint64_t own = clocks_.at(worker);
  if (clock < own) {
    return conflict("[server] rank " + std::to_string(worker) + ": expected a push with clock " +
                    std::to_string(own) + ", got " + std::to_string(clock));
  }
  if (is_synchronous()) {
    if (clock == step_) return Verdict::kNow;
    return clock < step_ ? Verdict::kLate : Verdict::kWait;
  }
  return clock == own && is_within_bound(clock) ? Verdict::kNow : Verdict::kWait;
}

bool UnitClock::has_pushed(uint32_t worker, uint64_t clock) const {
  const auto own = clocks_.find(worker);
  return own != clocks_.end() && clock < own->second;
}

Result<UnitClock::Verdict> UnitClock::judge_pull(uint32_t worker, uint64_t clock) const {
  TRY(check_worker(worker));
  const bool is_ready =
      is_synchronous() ? clock <= step_ : clock <= clocks_.at(worker) && is_within_bound(clock);
  return is_ready ? Verdict::kNow : Verdict::kWait;
}

bool UnitClock::waits_for_itself(uint32_t worker, uint64_t clock) const {
  return !is_synchronous() && clock > 0 && !has_pushed(worker, clock - 1);
}

void UnitClock::take_push(uint32_t worker, uint64_t clock) {
  uint64_t& own = clocks_.at(worker);
  own = clock + 1;
  highest_ = std::max(highest_, own);
}

bool UnitClock::is_step_complete() const {
  const auto pushed = static_cast<size_t>(
      std::ranges::count_if(clocks_, [&](const auto& each) { return each.second > step_; }));
  const size_t workers = clocks_.size();
  const size_t spared = std::min<size_t>(consistency_.backup_workers, workers - 1);
  return pushed >= workers - spared;
}

void UnitClock::set_workers(std::span<const uint32_t> workers) {
  CHECK(!workers.empty());
  const uint64_t first = slowest().clock;
  std::map<uint32_t, uint64_t> next;
  for (const uint32_t worker : workers) {
    const auto known = clocks_.find(worker);
    next[worker] = known == clocks_.end() ? first : known->second;
  }
  clocks_ = std::move(next);
}

UnitClock::WorkerClock UnitClock::slowest() const {
  const auto least =
      std::ranges::min_element(clocks_, {}, [](const auto& each) { return each.second; });
  return {.worker = least->first, .clock = least->second};
}

uint64_t UnitClock::clock_of(uint32_t worker) const {
  return clocks_.at(worker);
}

ParsedClock UnitClock::state() const {
  ParsedClock state{.state = {.step = step_, .highest = highest_}, .workers = {}};
  for (const auto& [worker, clock] : clocks_) {
    state.workers.push_back({.worker = worker, .clock = clock});
  }
  return state;
}

void UnitClock::set_state(const ParsedClock& state) {
  step_ = state.state.step;
  highest_ = state.state.highest;
  clocks_.clear();
  for (const WorkerEntry& entry : state.workers) clocks_[entry.worker] = entry.clock;
}

uint64_t UnitClock::now() const {
  return is_synchronous() ? step_ : highest_;
}

}  // namespace lockstep::server
