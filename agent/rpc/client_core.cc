#include "agent/rpc/client_core.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace lockstep::rpc {
namespace {

uint64_t number_of(const Digest& nonce) {
  uint64_t number = 0;
  std::memcpy(&number, nonce.data(), sizeof number);
  return number;
}

}  // namespace

ClientCore::ClientCore(Client::Options options, Poller poller)
    : options_(std::move(options)),
      poller_(std::move(poller)),
      client_(number_of(options_.nonce())) {}

ClientCore::~ClientCore() = default;

void ClientCore::run() {
  thread_ = std::thread([this] {
    loop_id_.store(std::this_thread::get_id());
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        if (stops_) return;
      }
      run_once();
    }
  });
}

void ClientCore::stop() {
  {
    const std::lock_guard lock(mutex);
    stops_ = true;
    wake();
  }
  thread_.join();
  {
    const std::lock_guard lock(mutex);
    loop_id_.store(std::this_thread::get_id());
    for (const auto& link : links_) {
      link->request_leave("the client ends");
      link->tick(now());
    }
  }
  run_callbacks();
}

ServerLink* ClientCore::add_server(const Client::ServerAddress& server) {
  const std::lock_guard lock(mutex);
  links_.push_back(std::make_unique<ServerLink>(*this, links_.size(), server));
  return links_.back().get();
}

CallState* ClientCore::take_state() {
  if (free_states_.empty()) {
    CallState& made = states_.emplace_back();
    made.out.owner = made.in.owner = &made;
    return &made;
  }
  CallState* const state = free_states_.back();
  free_states_.pop_back();
  return state;
}

void ClientCore::recycle(CallState& call) {
  call.clear();
  free_states_.push_back(&call);
}

CallState* ClientCore::find(uint64_t number) const {
  if (number < floor_ || number >= next_) return nullptr;
  return calls_[number % kUnfinishedMax];
}

CallState* ClientCore::begin(ServerLink& link, const Method& method, const CallOptions& options,
                             uint64_t number, Status& refused) {
  const std::lock_guard lock(mutex);
  const auto refuse = [&](Code code, const std::string& why) -> CallState* {
    if (number != 0) {
      calls_[number % kUnfinishedMax] = nullptr;
      while (floor_ < next_ && calls_[floor_ % kUnfinishedMax] == nullptr) ++floor_;
    }
    refused = Error{code, "[rpc] " + link.name() + ": " + method.name + ": " + why};
    return nullptr;
  };
  if (stops_) return refuse(Code::kUnavailable, "the client has ended");
  if (options.head.size() > kHeadMax) {
    return refuse(Code::kInvalid, "a head of " + std::to_string(options.head.size()) +
                                      " bytes, expected at most " + std::to_string(kHeadMax));
  }
  if (link.queued() >= options_.limits.queued_calls_max) {
    return refuse(Code::kUnavailable, std::to_string(link.queued()) + " calls are waiting already");
  }
  if (number == 0 && next_ - floor_ >= kUnfinishedMax) {
    return refuse(Code::kUnavailable, "call " + std::to_string(floor_) + ", " +
                                          std::to_string(kUnfinishedMax) +
                                          " calls ago, is still unfinished");
  }
  CallState& call = *take_state();
  call.number = number == 0 ? next_++ : number;
  calls_[call.number % kUnfinishedMax] = &call;
  call.link = &link;
  call.method = &method;
  call.is_held = true;
  call.request_head.assign(options.head.begin(), options.head.end());
  call.body.assign(options.body.begin(), options.body.end());
  std::erase_if(call.body, [](Bytes part) { return part.empty(); });
  call.into.assign(options.into.begin(), options.into.end());
  call.reply_bytes_max = options.reply_bytes_max;
  call.request_bytes = options.head.size() + bytes_in(options.body);
  call.object = options.object;
  call.on_done = options.on_done;
  if (options.timeout > Duration::zero()) {
    call.deadline = now() + options.timeout;
    next_deadline_ = std::min(next_deadline_, *call.deadline);
    if (*call.deadline < wakes_at_) wake();
  }
  link.enqueue(call);
  return &call;
}

void ClientCore::begin_burst() {
  const std::lock_guard lock(mutex);
  ++bursts_;
}

void ClientCore::end_burst() {
  const std::lock_guard lock(mutex);
  if (--bursts_ > 0) return;
  for (const auto& link : links_) link->send_kept();
}

void ClientCore::cancel(CallState& call) {
  const std::lock_guard lock(mutex);
  if (call.done.load() != 0 || call.is_cancelled) return;
  call.is_cancelled = true;
  if (is_loop()) return cancel_now(call);
  cancelled_.push_back(&call);
  wake();
}

void ClientCore::cancel_now(CallState& call) {
  if (call.done.load() != 0 || !call.is_cancelled) return;
  const bool is_over = call.link->withdraw(call);
  complete(call,
           unavailable("[rpc] " + call.link->name() + ": " + call.method->name + ": cancelled"),
           true);
  if (!is_over) return;
  call.phase = CallPhase::kAnswered;
  settle(call);
}

void ClientCore::complete(CallState& call, Status status, bool may_repeat) {
  if (call.done.load() != 0) return;
  call.status = std::move(status);
  call.may_repeat = may_repeat;
  if (call.on_done) {
    callbacks_.push_back(std::exchange(call.on_done, nullptr));
    if (!is_loop()) wake();
  }
  call.done.store(1);
  call.done.notify_all();
}

void ClientCore::free_number(CallState& call) {
  CallState*& place = calls_[call.number % kUnfinishedMax];
  if (place == &call) place = nullptr;
  while (floor_ < next_ && calls_[floor_ % kUnfinishedMax] == nullptr) ++floor_;
}

void ClientCore::settle(CallState& call) {
  call.link->uncount(call);
  if (call.phase != CallPhase::kAnswered || call.done.load() == 0) return;
  if (!call.is_held || !call.may_repeat) free_number(call);
  if (!call.is_held) recycle(call);
}

void ClientCore::let_go(CallState& call) {
  if (call.done.load() == 0) {
    cancel(call);
    call.done.wait(0);
  }
  const std::lock_guard lock(mutex);
  call.is_held = false;
  if (call.phase != CallPhase::kAnswered) return;
  free_number(call);
  recycle(call);
}

uint64_t ClientCore::take_number(CallState& call) {
  const std::lock_guard lock(mutex);
  if (!call.may_repeat) return 0;
  call.may_repeat = false;
  if (call.phase != CallPhase::kAnswered) call.link->orphan(call);
  return call.number;
}

void ClientCore::expire(TimePoint now) {
  if (now < next_deadline_) return;
  next_deadline_ = TimePoint::max();
  for_each_unfinished([&](CallState& call) {
    if (call.done.load() != 0 || !call.deadline) return;
    if (now < *call.deadline) {
      next_deadline_ = std::min(next_deadline_, *call.deadline);
      return;
    }
    const bool is_over = call.link->withdraw(call);
    complete(call,
             timed_out("[rpc] " + call.link->name() + ": " + call.method->name +
                           ": no reply by the deadline",
                       Blame::kPeer),
             true);
    if (!is_over) return;
    call.phase = CallPhase::kAnswered;
    settle(call);
  });
}

void ClientCore::tick() {
  const std::lock_guard lock(mutex);
  for (CallState* const call : std::exchange(cancelled_, {})) cancel_now(*call);
  const TimePoint at = now();
  expire(at);
  wakes_at_ = next_deadline_;
  for (const auto& link : links_) {
    wakes_at_ = std::min(wakes_at_, link->tick(at));
    if (link->has_work()) wakes_at_ = at;
  }
}

void ClientCore::run_callbacks() {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex);
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) callback();
}

void ClientCore::run_once() {
  tick();
  run_callbacks();
  std::vector<ServerLink*> links;
  Duration timeout{};
  {
    const std::lock_guard lock(mutex);
    timeout = wakes_at_ == TimePoint::max() ? std::chrono::minutes(1) : wakes_at_ - now();
    if (!callbacks_.empty() || !cancelled_.empty()) timeout = Duration::zero();
    for (const auto& link : links_) links.push_back(link.get());
  }
  for (const Poller::Event& event : poller_.wait(timeout)) {
    links[event.tag]->on_event(event.readable, event.writable);
  }
  for (ServerLink* const link : links) {
    if (link->has_work()) link->on_event(true, false);
  }
}

}  // namespace lockstep::rpc
