#include "agent/train/servers/job_desk.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::train {
namespace {

// Steps that are kept until all workers have reported them. With asynchronous updates a worker may
// be far behind; then the oldest losses are not told.
constexpr size_t kStepsMax = 4096;

constexpr char kEnded[] = "[servers] the server has ended";

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
    if (is_closed_) return request.fail(Code::kUnavailable, kEnded);
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
  const auto refuse_ended = [](rpc::Request& request) { request.fail(Code::kUnavailable, kEnded); };
  for (auto& [number, meeting] : meetings_) {
    for (rpc::Request& request : meeting.requests) refuse_ended(request);
  }
  for (WaitingReport& each : waiting_) refuse_ended(each.request);
  for (Order& order : orders_) refuse_ended(order.request);
  meetings_.clear();
  waiting_.clear();
  orders_.clear();
}

void JobDesk::hello(rpc::Request request) {
  const HelloReply reply{.hangs = hung_ ? uint64_t{1} + *hung_ : uint64_t{0}};
  request.answer({.head = head_bytes(reply)});
}

std::vector<uint32_t> JobDesk::workers_without(
    const std::function<bool(uint32_t)>& has_come) const {
  std::vector<uint32_t> others;
  for (uint32_t rank = 0; rank < workers_; ++rank) {
    if (!has_come(rank)) others.push_back(rank);
  }
  return others;
}

uint64_t JobDesk::reached_by_all() const {
  return *std::ranges::min_element(reached_);
}

uint64_t JobDesk::step() const {
  const std::lock_guard lock(mutex_);
  return reached_by_all();
}

// A worker gives up a call when another server has answered it. This one may never get the calls of
// all workers then, and nobody is late.
void JobDesk::drop_unwanted() {
  const auto drop = [](rpc::Request& request) {
    if (request.is_wanted()) return false;
    request.fail(Code::kUnavailable, "[servers] nobody waits for the call any more");
    return true;
  };
  for (auto& [number, meeting] : meetings_) {
    std::erase_if(meeting.requests, drop);
  }
  std::erase_if(waiting_, [&](WaitingReport& each) { return drop(each.request); });
}

std::optional<AwaitedWorkers> JobDesk::awaited() {
  const std::lock_guard lock(mutex_);
  drop_unwanted();
  for (const auto& [number, meeting] : meetings_) {
    if (meeting.requests.empty()) continue;
    return AwaitedWorkers{"meeting", number, workers_without([&](uint32_t rank) {
                            return meeting.calls.contains(rank);
                          })};
  }
  if (waiting_.empty()) return std::nullopt;
  const uint64_t step = std::ranges::min_element(waiting_, {}, &WaitingReport::step)->step;
  return AwaitedWorkers{"step", step,
                        workers_without([&](uint32_t rank) { return reached_[rank] >= step; })};
}

void JobDesk::refuse(rpc::Request& request) const {
  request.fail(Code::kTimeout, "[servers] rank " + std::to_string(*hung_) +
                                   " has not come for too long, while other workers wait for it");
}

void JobDesk::blame(uint32_t worker) {
  const std::lock_guard lock(mutex_);
  hung_ = worker;
  for (auto& [number, meeting] : meetings_) {
    for (rpc::Request& request : meeting.requests) refuse(request);
  }
  for (WaitingReport& each : waiting_) refuse(each.request);
  meetings_.clear();
  steps_.clear();
  waiting_.clear();
}

void JobDesk::forget_meetings_before(uint64_t number) {
  const auto end = meetings_.lower_bound(number);
  for (auto each = meetings_.begin(); each != end; ++each) {
    for (rpc::Request& request : each->second.requests) {
      request.fail(Code::kUnavailable, "[servers] all workers have passed this meeting");
    }
  }
  meetings_.erase(meetings_.begin(), end);
}

// A worker that is in a meeting has passed the one before, so all workers have called that, and
// have passed the one before it.
void JobDesk::meet(rpc::Request request) {
  const auto call = head_of<MeetCall>(request);
  if (!call) return refuse_head(request);
  if (hung_) return refuse(request);
  const uint32_t rank = request.rank();
  if (call->number > 0) forget_meetings_before(call->number - 1);
  Meeting& meeting = meetings_[call->number];
  meeting.calls[rank] = *call;
  std::erase_if(meeting.requests, [&](rpc::Request& earlier) {
    if (earlier.rank() != rank) return false;
    earlier.fail(Code::kUnavailable, "[servers] the worker has called again");
    return true;
  });
  meeting.requests.push_back(std::move(request));
  if (meeting.calls.size() < workers_) return;
  MeetReply reply;
  for (const auto& [each, values] : meeting.calls) {
    for (size_t i = 0; i < kMeetValues; ++i) reply.sums[i] += values.values[i];
  }
  for (rpc::Request& waiting : meeting.requests) waiting.answer({.head = head_bytes(reply)});
  meeting.requests.clear();
  forget_meetings_before(call->number);
}

void JobDesk::answer(rpc::Request& request) const {
  request.answer({.head = head_bytes(news_)});
}

// No worker has completed more than one step more than it has reported, because it waits for the
// answer. So all of them can still stop after the next one. A worker that knows where to stop tells
// all servers before it goes on, and goes on only if none of them knows of a later step.
void JobDesk::agree_on_stop(uint32_t rank, const StepReport& report) {
  unaware_[rank] = report.stop_at == 0 ? std::max(unaware_[rank], report.step) : 0;
  const bool decides = report.leads != 0 && (report.stops != 0 || news_.stops != 0);
  const bool is_first = news_.stop_at == 0 && (decides || report.stop_at != 0);
  news_.stop_at = std::max(news_.stop_at, report.stop_at);
  if (!is_first) return;
  news_.stop_at = std::max(news_.stop_at, *std::ranges::max_element(unaware_) + 1);
}

void JobDesk::add_loss(uint32_t rank, const StepReport& report) {
  if (report.step <= news_.step) return;
  std::map<uint32_t, StepReport>& reports = steps_[report.step];
  reports[rank] = report;
  if (reports.size() == workers_) {
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

void JobDesk::report_step(rpc::Request request) {
  const auto report = head_of<StepReport>(request);
  if (!report) return refuse_head(request);
  if (hung_) return refuse(request);
  uint64_t& reached = reached_[request.rank()];
  reached = std::max(reached, report->step);
  const auto slowest = std::ranges::min_element(reached_);
  news_.slowest = static_cast<uint64_t>(slowest - reached_.begin());
  news_.slowest_step = *slowest;
  agree_on_stop(request.rank(), *report);
  add_loss(request.rank(), *report);
  if (report->waits != 0) {
    waiting_.push_back({report->step, std::move(request)});
  } else {
    answer(request);
  }
  std::erase_if(waiting_, [&](WaitingReport& each) {
    if (each.step > *slowest) return false;
    answer(each.request);
    return true;
  });
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

bool JobDesk::first_has_left() const {
  const std::lock_guard lock(mutex_);
  return left_.contains(0);
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
