#include "agent/train/servers/job_desk.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace lockstep::train {
namespace {

Error ended_error() {
  return unavailable("[servers] the server has ended");
}

void refuse(rpc::Request& request, const Error& error) {
  request.fail(error.code, error.message);
}

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
    if (is_closed_) return refuse(request, ended_error());
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
  serve(server, kReturn, &JobDesk::return_worker);
}

void JobDesk::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  meetings_.refuse_all(ended_error());
  steps_.refuse_all(ended_error());
  for (Order& order : orders_) refuse(order.request, ended_error());
  orders_.clear();
}

void JobDesk::hello(rpc::Request request) {
  const HelloReply reply{.hangs = hung_ ? uint64_t{1} + *hung_ : uint64_t{0}};
  request.answer({.head = head_bytes(reply)});
}

uint64_t JobDesk::step() const {
  const std::lock_guard lock(mutex_);
  return steps_.step();
}

std::optional<AwaitedWorkers> JobDesk::awaited() {
  const std::lock_guard lock(mutex_);
  std::optional<AwaitedWorkers> awaited = meetings_.awaited();
  if (!awaited) awaited = steps_.awaited();
  const auto is_lost = [&](uint32_t rank) { return is_away_now(rank); };
  if (awaited && std::ranges::any_of(awaited->ranks, is_lost)) return std::nullopt;
  return awaited;
}

void JobDesk::note_lost(const std::map<int64_t, int64_t>& workers) {
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, since] : workers) {
    note_away(static_cast<uint32_t>(rank), static_cast<uint64_t>(since));
  }
}

void JobDesk::note_away(uint32_t worker, uint64_t view) {
  Beginning& known = beginnings_[worker];
  if (view > known.view) known = {.view = view, .is_away = true};
}

bool JobDesk::is_away(uint32_t worker) const {
  const std::lock_guard lock(mutex_);
  return is_away_now(worker);
}

bool JobDesk::is_away_now(uint32_t worker) const {
  const auto found = beginnings_.find(worker);
  return found != beginnings_.end() && found->second.is_away;
}

ReturnReply JobDesk::past_of(uint32_t worker) const {
  const std::lock_guard lock(mutex_);
  const Meetings::Called called = meetings_.called(worker);
  const auto left = left_.find(worker);
  return {.step = steps_.step_of(worker),
          .meetings = called.meetings,
          .met_step = called.step,
          .met_place = called.place,
          .has_left = left == left_.end() ? uint64_t{0}
                      : left->second      ? uint64_t{2}
                                          : uint64_t{1}};
}

// The server's own thread knows the rest.
void JobDesk::return_worker(rpc::Request request) {
  const auto call = head_of<ReturnCall>(request);
  if (!call) return refuse_head(request);
  note_away(request.rank(), call->since);
  orders_.push_back({OrderKind::kReturn, std::move(request)});
  changed_.notify_all();
}

Error JobDesk::hang_error() const {
  return timed_out("[servers] rank " + std::to_string(*hung_) +
                   " has not come for too long, while other workers wait for it");
}

void JobDesk::blame(uint32_t worker) {
  const std::lock_guard lock(mutex_);
  hung_ = worker;
  meetings_.refuse_all(hang_error());
  steps_.refuse_all(hang_error());
}

void JobDesk::meet(rpc::Request request) {
  const auto call = head_of<MeetCall>(request);
  if (!call) return refuse_head(request);
  if (hung_) return refuse(request, hang_error());
  beginnings_[request.rank()].is_away = false;
  meetings_.take(*call, std::move(request));
}

void JobDesk::report_step(rpc::Request request) {
  const auto report = head_of<StepReport>(request);
  if (!report) return refuse_head(request);
  if (hung_) return refuse(request, hang_error());
  beginnings_[request.rank()].is_away = false;
  steps_.take(*report, std::move(request));
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
  left_[request.rank()] = call->stopped != 0;
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
  return std::ranges::any_of(left_, [](const auto& worker) { return worker.second; });
}

void JobDesk::ask_to_stop() {
  const std::lock_guard lock(mutex_);
  steps_.ask_to_stop();
}

}  // namespace lockstep::train
