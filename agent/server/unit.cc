#include "agent/server/unit.h"

#include <algorithm>
#include <utility>

namespace lockstep::server {
namespace {

Status check_rate(const UnitCall& call, const UnitCall& other) {
  if (call.head.learning_rate == other.head.learning_rate) return {};
  return invalid("[server] expected the learning rate of rank " +
                 std::to_string(other.request.rank()) + ", " +
                 std::to_string(other.head.learning_rate) + ", got " +
                 std::to_string(call.head.learning_rate));
}

}  // namespace

Unit::Unit(Options options)
    : options_(std::move(options)),
      state_(std::move(options_.state)),
      clock_(options_.consistency, options_.workers) {}

void Unit::refuse(UnitCall& call, const Error& error) {
  call.request.fail(error.code, error.message + " (" + options_.name + ")");
}

ReplyHead Unit::reply_head(uint32_t worker) const {
  return {.slowest = clock_.slowest().clock, .now = clock_.now(), .own = clock_.clock_of(worker)};
}

void Unit::answer(UnitCall& call, bool is_late) {
  ReplyHead reply = reply_head(call.request.rank());
  reply.is_late = is_late ? 1 : 0;
  call.request.answer({.head = std::as_bytes(std::span(&reply, 1))});
}

void Unit::record(const UnitCall& call, HistoryEvent event) {
  if (!options_.recorder) return;
  event.unit = options_.id;
  event.now = clock_.now();
  event.worker = call.request.rank();
  event.clock = call.head.clock;
  event.slowest = clock_.slowest().clock;
  event.keys = call.key_span();
  options_.recorder(event);
}

void Unit::push(UnitCall call) {
  if (try_push(call)) return settle();
  drop_unwanted(waiting_pushes_);
  waiting_pushes_.push_back(std::move(call));
}

void Unit::pull(UnitCall call) {
  if (try_pull(call)) return;
  drop_unwanted(waiting_pulls_);
  waiting_pulls_.push_back(std::move(call));
}

void Unit::put(UnitCall call) {
  if (clock_.now() > 0 || !pushed_.empty()) {
    return refuse(call, conflict("[server] expected a put before the first push"));
  }
  const auto judged = clock_.judge_pull(call.request.rank(), call.head.clock);
  if (!judged.ok()) return refuse(call, judged.error());
  if (const Status put = state_->put(call.values); !put.ok()) return refuse(call, put.error());
  record(call, {.kind = HistoryEvent::Kind::kPut, .values = call.values});
  answer(call, false);
}

bool Unit::try_pull(UnitCall& call) {
  const uint32_t worker = call.request.rank();
  const auto verdict = clock_.judge_pull(worker, call.head.clock);
  if (!verdict.ok()) {
    refuse(call, verdict.error());
    return true;
  }
  if (*verdict == UnitClock::Verdict::kWait) return false;
  const EncodedFloats what = encoded_floats(call.head, floats());
  const uint64_t bytes = encoded_bytes(what);
  ReplyMemory::Reply reply = options_.replies->take(worker, (bytes + 3) / sizeof(float));
  if (reply == nullptr) return false;
  if (const Status used = state_->use(call.key_span(), clock_.now()); !used.ok()) {
    refuse(call, used.error());
    return true;
  }
  read(call, what, std::as_writable_bytes(std::span(*reply)).first(bytes));
  const ReplyHead head = reply_head(worker);
  const rpc::Bytes body[] = {std::as_bytes(std::span(*reply)).first(bytes)};
  call.request.answer({.head = std::as_bytes(std::span(&head, 1)),
                       .body = body,
                       .on_free = [reply = std::move(reply)]() mutable { reply.reset(); }});
  return true;
}

// Reads the values that the call asks for, and writes them as it wants them.
void Unit::read(const UnitCall& call, const EncodedFloats& what, std::span<std::byte> reply) {
  std::span<float> values(reinterpret_cast<float*>(reply.data()), reply.size() / sizeof(float));
  if (what.encoding != Encoding::kF32) {
    read_.resize(what.floats);
    values = read_;
  }
  state_->read(call.key_span(), clock_.now(), values);
  record(call, {.kind = HistoryEvent::Kind::kPull, .values = values});
  if (what.encoding != Encoding::kF32) encode(what, values, reply);
}

bool Unit::try_push(UnitCall& call) {
  const auto verdict = clock_.judge_push(call.request.rank(), call.head.clock);
  if (!verdict.ok()) {
    refuse(call, verdict.error());
    return true;
  }
  switch (*verdict) {
    case UnitClock::Verdict::kWait:
      return false;
    case UnitClock::Verdict::kLate:
      take_late_push(call);
      return true;
    case UnitClock::Verdict::kNow:
      take_push(call);
      return true;
  }
  return true;
}

void Unit::take_late_push(UnitCall& call) {
  clock_.take_push(call.request.rank(), call.head.clock);
  answer(call, true);
}

void Unit::take_push(UnitCall& call) {
  if (!pushed_.empty()) {
    if (const Status same = check_rate(call, pushed_.front()); !same.ok()) {
      return refuse(call, same.error());
    }
  }
  if (const Status used = state_->use(call.key_span(), clock_.now()); !used.ok()) {
    return refuse(call, used.error());
  }
  const uint32_t worker = call.request.rank();
  if (!clock_.is_synchronous()) {
    update(std::span(&call, 1));
    clock_.take_push(worker, call.head.clock);
    answer(call, false);
    return sweep();
  }
  clock_.take_push(worker, call.head.clock);
  answer(call, false);
  const auto place = std::ranges::upper_bound(
      pushed_, worker, {}, [](const UnitCall& other) { return other.request.rank(); });
  pushed_.insert(place, std::move(call));
  if (!clock_.is_step_complete()) return;
  update(pushed_);
  pushed_.clear();
  clock_.begin_next_step();
  sweep();
}

void Unit::update(std::span<UnitCall> pushes) {
  std::vector<uint32_t> workers;
  std::vector<Gradient> gradients;
  for (const UnitCall& push : pushes) {
    workers.push_back(push.request.rank());
    gradients.push_back({.keys = push.key_span(), .values = push.values});
  }
  const UpdateStep step{.learning_rate = pushes.front().head.learning_rate, .now = clock_.now()};
  if (options_.recorder) {
    options_.recorder({.kind = HistoryEvent::Kind::kUpdate,
                       .unit = options_.id,
                       .now = step.now,
                       .workers = workers,
                       .gradients = gradients,
                       .learning_rate = step.learning_rate});
  }
  state_->update(gradients, step);
}

void Unit::sweep() {
  const std::span<const uint64_t> expired = state_->sweep(clock_.now());
  if (expired.empty() || !options_.recorder) return;
  options_.recorder({.kind = HistoryEvent::Kind::kExpiry,
                     .unit = options_.id,
                     .now = clock_.now(),
                     .keys = expired});
}

void Unit::drop_unwanted(std::list<UnitCall>& waiting) {
  std::erase_if(waiting, [&](UnitCall& call) {
    if (call.request.is_wanted()) return false;
    refuse(call, unavailable("[server] nobody waits for the call any more"));
    return true;
  });
}

bool Unit::settle(std::list<UnitCall>& waiting, bool (Unit::*take)(UnitCall&)) {
  drop_unwanted(waiting);
  return std::erase_if(waiting, [&](UnitCall& call) { return (this->*take)(call); }) > 0;
}

void Unit::settle() {
  while (settle(waiting_pushes_, &Unit::try_push)) continue;
  settle(waiting_pulls_, &Unit::try_pull);
}

void Unit::set_workers(std::span<const uint32_t> workers) {
  clock_.set_workers(workers);
  std::erase_if(pushed_, [&](const UnitCall& push) {
    return !std::ranges::binary_search(workers, push.request.rank());
  });
  if (clock_.is_synchronous() && !pushed_.empty() && clock_.is_step_complete()) {
    update(pushed_);
    pushed_.clear();
    clock_.begin_next_step();
  }
  settle();
}

void Unit::fail_waiting(const Error& error) {
  for (std::list<UnitCall>* const waiting : {&waiting_pushes_, &waiting_pulls_}) {
    for (UnitCall& call : *waiting) refuse(call, error);
    waiting->clear();
  }
  pushed_.clear();
}

void Unit::begin_at(uint64_t first) {
  clock_ = UnitClock(options_.consistency, options_.workers, first);
  settle();
}

Unit::Report Unit::report() const {
  return {.name = options_.name,
          .now = clock_.now(),
          .slowest = clock_.slowest(),
          .waiting = waiting_pushes_.size() + waiting_pulls_.size(),
          .size = state_->size()};
}

}  // namespace lockstep::server
