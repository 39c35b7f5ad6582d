#include "agent/train/servers/step_reports.h"

#include <algorithm>
#include <utility>

#include "agent/train/servers/waiting_calls.h"

namespace lockstep::train {
namespace {

// Steps that are kept until all workers have reported them. With asynchronous updates a worker may
// be far behind; then the oldest losses are not told.
constexpr size_t kStepsMax = 4096;

}  // namespace

uint64_t StepReports::step() const {
  return *std::ranges::min_element(reached_);
}

// No worker has completed more than one step more than it has reported, because it waits for the
// answer. So all of them can still stop after the next one. A worker that knows where to stop tells
// all servers before it goes on, and goes on only if none of them knows of a later step.
void StepReports::agree_on_stop(uint32_t rank, const StepReport& report) {
  unaware_[rank] = report.stop_at == 0 ? std::max(unaware_[rank], report.step) : 0;
  const bool decides = report.leads != 0 && (report.stops != 0 || news_.stops != 0);
  const bool is_first = news_.stop_at == 0 && (decides || report.stop_at != 0);
  news_.stop_at = std::max(news_.stop_at, report.stop_at);
  if (!is_first) return;
  news_.stop_at = std::max(news_.stop_at, *std::ranges::max_element(unaware_) + 1);
}

// A report without rows is that of a worker that has returned, and repeats one that counts.
void StepReports::add_loss(uint32_t rank, const StepReport& report) {
  if (report.step <= news_.step || report.rows == 0) return;
  std::map<uint32_t, StepReport>& reports = steps_[report.step];
  reports[rank] = report;
  if (reports.size() == reached_.size()) {
    news_.step = report.step;
    news_.rows = 0;
    news_.loss_sum = 0;
    for (const auto& [each, told] : reports) {
      news_.rows += told.rows;
      news_.loss_sum += told.loss_sum;
    }
    steps_.erase(steps_.begin(), steps_.upper_bound(report.step));
  } else if (steps_.size() > kStepsMax) {
    steps_.erase(steps_.begin());
  }
}

void StepReports::take(const StepReport& report, rpc::Request request) {
  const uint32_t rank = request.rank();
  reached_[rank] = std::max(reached_[rank], report.step);
  const auto slowest = std::ranges::min_element(reached_);
  news_.slowest = static_cast<uint64_t>(slowest - reached_.begin());
  news_.slowest_step = *slowest;
  agree_on_stop(rank, report);
  add_loss(rank, report);
  if (report.waits != 0) {
    waiting_.push_back({report.step, std::move(request)});
  } else {
    answer(request);
  }
  std::erase_if(waiting_, [&](Waiting& each) {
    if (each.step > *slowest) return false;
    answer(each.request);
    return true;
  });
}

std::optional<AwaitedWorkers> StepReports::awaited() {
  std::erase_if(waiting_, [](Waiting& each) { return refuse_unwanted(each.request); });
  if (waiting_.empty()) return std::nullopt;
  const uint64_t step = std::ranges::min_element(waiting_, {}, &Waiting::step)->step;
  const auto has_come = [&](uint32_t rank) { return reached_[rank] >= step; };
  const auto workers = static_cast<uint32_t>(reached_.size());
  return AwaitedWorkers{"step", step, workers_without(workers, has_come)};
}

void StepReports::refuse_all(const Error& error) {
  for (Waiting& each : waiting_) each.request.fail(error.code, error.message);
  waiting_.clear();
}

}  // namespace lockstep::train
