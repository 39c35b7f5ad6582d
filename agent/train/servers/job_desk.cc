#include "agent/train/servers/job_desk.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::train {
namespace {

// Steps that are kept until all workers have reported them. With asynchronous updates a worker may
// be far behind; then the oldest losses are not told.
constexpr size_t kStepsMax = 4096;

template <class T>
std::optional<T> head_of(const rpc::Request& request) {
  T value;
  if (request.head().size() != sizeof value) return std::nullopt;
  std::memcpy(&value, request.head().data(), sizeof value);
  return value;
}

void refuse_head(rpc::Request& request) {
  request.fail(Code::kInvalid, "[servers] expected another head");
}

}  // namespace

void JobDesk::serve(rpc::Server& server, const rpc::Method& method,
                    void (JobDesk::*handler)(rpc::Request)) {
  server.add(method, [this, handler](rpc::Request request) {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return request.fail(Code::kUnavailable, "[servers] the server has ended");
    if (request.rank() >= workers_) {
      return request.fail(Code::kInvalid, "[servers] expected a call of a worker");
    }
    (this->*handler)(std::move(request));
  });
}

void JobDesk::add_methods(rpc::Server& server) {
  serve(server, kHello, &JobDesk::hello);
  serve(server, kMeet, &JobDesk::meet);
  serve(server, kReportStep, &JobDesk::report_step);
  serve(server, kLoadState, &JobDesk::load);
  serve(server, kSaveState, &JobDesk::save);
  serve(server, kLeaveJob, &JobDesk::leave);
}

void JobDesk::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  meetings_.clear();
  steps_.clear();
  orders_.clear();
}

void JobDesk::hello(rpc::Request request) {
  const HelloReply reply{.hangs = hung_ ? uint64_t{1} + *hung_ : uint64_t{0}};
  request.answer({.head = head_bytes(reply)});
}

std::vector<uint32_t> JobDesk::others_than(const auto& by_rank) const {
  std::vector<uint32_t> others;
  for (uint32_t rank = 0; rank < workers_; ++rank) {
    if (!by_rank.contains(rank)) others.push_back(rank);
  }
  return others;
}

uint64_t JobDesk::step() const {
  const std::lock_guard lock(mutex_);
  return *std::ranges::min_element(reached_);
}

std::optional<AwaitedWorkers> JobDesk::awaited() const {
  const std::lock_guard lock(mutex_);
  if (!meetings_.empty()) {
    const auto& [number, meeting] = *meetings_.begin();
    return AwaitedWorkers{"meeting", number, others_than(meeting.calls)};
  }
  for (const auto& [step, reports] : steps_) {
    if (reports.waiting.empty()) continue;
    return AwaitedWorkers{"step", step, others_than(reports.reports)};
  }
  return std::nullopt;
}

void JobDesk::refuse(rpc::Request& request) const {
  request.fail(Code::kTimeout, "[servers] rank " + std::to_string(*hung_) +
                                   " has not come for too long, while other workers wait for it");
}

void JobDesk::blame(uint32_t worker) {
  const std::lock_guard lock(mutex_);
  hung_ = worker;
  for (auto& [number, meeting] : meetings_) {
    for (rpc::Request& waiting : meeting.requests) refuse(waiting);
  }
  for (auto& [step, reports] : steps_) {
    for (rpc::Request& waiting : reports.waiting) refuse(waiting);
  }
  meetings_.clear();
  steps_.clear();
}

void JobDesk::meet(rpc::Request request) {
  const auto call = head_of<MeetCall>(request);
  if (!call) return refuse_head(request);
  if (hung_) return refuse(request);
  Meeting& meeting = meetings_[call->number];
  meeting.calls[request.rank()] = *call;
  meeting.requests.push_back(std::move(request));
  if (meeting.calls.size() < workers_) return;
  MeetReply reply;
  for (const auto& [rank, each] : meeting.calls) {
    for (size_t i = 0; i < kMeetValues; ++i) reply.sums[i] += each.values[i];
  }
  for (rpc::Request& waiting : meeting.requests) waiting.answer({.head = head_bytes(reply)});
  meetings_.erase(call->number);
}

void JobDesk::answer(rpc::Request& request) const {
  request.answer({.head = head_bytes(news_)});
}

// No worker has completed more than one step more than it has reported, because it waits for the
// answer. So all of them can still stop after the next one.
void JobDesk::report_step(rpc::Request request) {
  const auto report = head_of<StepReport>(request);
  if (!report) return refuse_head(request);
  if (hung_) return refuse(request);
  uint64_t& reached = reached_[request.rank()];
  reached = std::max(reached, report->step);
  const auto slowest = std::ranges::min_element(reached_);
  news_.slowest = static_cast<uint64_t>(slowest - reached_.begin());
  news_.slowest_step = *slowest;
  if ((report->stops != 0 || news_.stops != 0) && news_.stop_at == 0) {
    news_.stop_at = *std::ranges::max_element(reached_) + 1;
  }
  Step& step = steps_[report->step];
  step.reports[request.rank()] = *report;
  const bool is_complete = step.reports.size() == workers_;
  if (is_complete && report->step > news_.step) {
    news_.step = report->step;
    news_.rows = 0;
    news_.loss_sum = 0;
    for (const auto& [rank, each] : step.reports) {
      news_.rows += each.rows;
      news_.loss_sum += each.loss_sum;
    }
  }
  if (report->waits != 0) {
    step.waiting.push_back(std::move(request));
  } else {
    answer(request);
  }
  if (is_complete) {
    for (rpc::Request& waiting : step.waiting) answer(waiting);
    steps_.erase(report->step);
  } else if (steps_.size() > kStepsMax) {
    for (rpc::Request& waiting : steps_.begin()->second.waiting) answer(waiting);
    steps_.erase(steps_.begin());
  }
}

void JobDesk::order(OrderKind kind, rpc::Request request) {
  if (request.rank() != 0) {
    return request.fail(Code::kInvalid, "[servers] expected an order of rank 0");
  }
  orders_.push_back({kind, std::move(request)});
  changed_.notify_all();
}

void JobDesk::leave(rpc::Request request) {
  const auto call = head_of<LeaveCall>(request);
  if (!call) return refuse_head(request);
  left_.insert(request.rank());
  was_stopped_ = was_stopped_ || call->stopped != 0;
  request.answer({});
  changed_.notify_all();
}

std::optional<JobDesk::Order> JobDesk::next(Duration at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] { return !orders_.empty() || left_.size() == workers_; });
  if (orders_.empty()) return std::nullopt;
  Order order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

bool JobDesk::all_have_left() const {
  const std::lock_guard lock(mutex_);
  return left_.size() == workers_;
}

bool JobDesk::was_stopped() const {
  const std::lock_guard lock(mutex_);
  return was_stopped_;
}

void JobDesk::ask_to_stop() {
  const std::lock_guard lock(mutex_);
  news_.stops = 1;
}

}  // namespace lockstep::train
