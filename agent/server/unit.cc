#include "agent/server/unit.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace lockstep::server {
namespace {

Status check_rate(const UnitCall& call, const UnitCall& other) {
  if (call.head.learning_rate == other.head.learning_rate) return {};
  return invalid("[server] expected the learning rate of rank " + std::to_string(other.worker) +
                 ", " + std::to_string(other.head.learning_rate) + ", got " +
                 std::to_string(call.head.learning_rate));
}

}  // namespace

Unit::Unit(Options options)
    : options_(std::move(options)),
      state_(std::move(options_.state)),
      clock_(options_.consistency, options_.workers),
      workers_(options_.workers),
      is_whole_(options_.is_whole) {
  if (!is_whole_) state_->hold_parts(0);
}

void Unit::refuse(UnitCall& call, const Error& error) {
  call.request.fail(error.code, error.message + " (" + options_.name + ")");
}

ReplyHead Unit::reply_head(uint32_t worker) const {
  return {.slowest = clock_.slowest().clock,
          .now = clock_.now(),
          .own = clock_.clock_of(worker),
          .sequence = sequence_};
}

// Answers a push or put whose entry is the last one of the log.
void Unit::promise_answer(const SharedCall& call, bool is_late) {
  ReplyHead reply = reply_head(call->worker);
  reply.is_late = is_late ? 1 : 0;
  promise(sequence_, [this, call, reply](const Status& status) {
    if (!status.ok()) return refuse(*call, status.error());
    call->request.answer({.head = std::as_bytes(std::span(&reply, 1))});
  });
}

void Unit::record(const UnitCall& call, HistoryEvent event) {
  if (!options_.recorder) return;
  event.unit = options_.id;
  event.view = place_.fence.number;
  event.sequence = sequence_;
  event.now = clock_.now();
  event.worker = call.worker;
  event.clock = call.head.clock;
  event.slowest = clock_.slowest().clock;
  event.keys = call.key_span();
  options_.recorder(event);
}

void Unit::push(UnitCall call) {
  const auto shared = std::make_shared<UnitCall>(std::move(call));
  if (try_push(shared)) return settle();
  drop_unwanted(waiting_pushes_);
  waiting_pushes_.push_back(shared);
}

void Unit::pull(UnitCall call) {
  const auto shared = std::make_shared<UnitCall>(std::move(call));
  if (try_pull(shared)) return;
  drop_unwanted(waiting_pulls_);
  waiting_pulls_.push_back(shared);
}

void Unit::put(UnitCall call) {
  if (clock_.now() > 0 || !pushed_.empty()) {
    return refuse(call, conflict("[server] expected a put before the first push"));
  }
  const auto judged = clock_.judge_pull(call.worker, call.head.clock);
  if (!judged.ok()) return refuse(call, judged.error());
  if (const Status put = state_->put(call.values); !put.ok()) return refuse(call, put.error());
  const auto shared = std::make_shared<UnitCall>(std::move(call));
  log({.kind = CopyKind::kPut, .worker = shared->worker, .call = shared->head}, {shared->sent},
      shared);
  record(*shared, {.kind = HistoryEvent::Kind::kPut, .values = shared->values});
  promise_answer(shared, false);
}

bool Unit::try_pull(const SharedCall& call) {
  const auto verdict = clock_.judge_pull(call->worker, call->head.clock);
  if (!verdict.ok()) {
    refuse(*call, verdict.error());
    return true;
  }
  if (*verdict == UnitClock::Verdict::kWait) return false;
  const EncodedFloats what = encoded_floats(call->head, floats());
  const uint64_t bytes = encoded_bytes(what);
  ReplyMemory::Reply reply = options_.replies->take(call->worker, (bytes + 3) / sizeof(float));
  if (reply == nullptr) return false;
  if (const Status used = state_->use(call->key_span(), clock_.now()); !used.ok()) {
    refuse(*call, used.error());
    return true;
  }
  read(*call, what, std::as_writable_bytes(std::span(*reply)).first(bytes));
  const ReplyHead head = reply_head(call->worker);
  promise(sequence_, [this, call, head, bytes, reply](const Status& status) mutable {
    if (!status.ok()) return refuse(*call, status.error());
    const rpc::Bytes body[] = {std::as_bytes(std::span(*reply)).first(bytes)};
    call->request.answer({.head = std::as_bytes(std::span(&head, 1)),
                          .body = body,
                          .on_free = [reply = std::move(reply)]() mutable { reply.reset(); }});
  });
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

bool Unit::try_push(const SharedCall& call) {
  const bool repeats = (call->head.flags & CallHead::kRepeats) != 0;
  if (repeats && clock_.has_pushed(call->worker, call->head.clock)) {
    promise_answer(call, false);
    return true;
  }
  const auto verdict = clock_.judge_push(call->worker, call->head.clock);
  if (!verdict.ok()) {
    refuse(*call, verdict.error());
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

void Unit::take_late_push(const SharedCall& call) {
  log_push(call);
  clock_.take_push(call->worker, call->head.clock);
  record_other();
  promise_answer(call, true);
}

void Unit::take_push(const SharedCall& call) {
  if (!pushed_.empty()) {
    if (const Status same = check_rate(*call, *pushed_.front()); !same.ok()) {
      return refuse(*call, same.error());
    }
  }
  if (const Status used = state_->use(call->key_span(), clock_.now()); !used.ok()) {
    return refuse(*call, used.error());
  }
  log_push(call);
  const uint64_t before = clock_.now();
  apply_push(call);
  promise_answer(call, false);
  if (clock_.now() > before || !clock_.is_synchronous()) sweep();
  try_begin_fill();
}

void Unit::sweep() {
  const std::span<const uint64_t> expired = state_->sweep(clock_.now());
  if (expired.empty()) return;
  const auto keys = std::make_shared<const std::vector<uint64_t>>(expired.begin(), expired.end());
  log({.kind = CopyKind::kExpiry}, {std::as_bytes(std::span(*keys))}, keys);
  record_expiry(*keys);
}

void Unit::drop_unwanted(Waiting& waiting) {
  std::erase_if(waiting, [&](const SharedCall& call) {
    if (call->request.is_wanted()) return false;
    refuse(*call, unavailable("[server] nobody waits for the call any more"));
    return true;
  });
}

bool Unit::settle(Waiting& waiting, bool (Unit::*take)(const SharedCall&)) {
  drop_unwanted(waiting);
  return std::erase_if(waiting, [&](const SharedCall& call) { return (this->*take)(call); }) > 0;
}

void Unit::settle() {
  while (settle(waiting_pushes_, &Unit::try_push)) continue;
  settle(waiting_pulls_, &Unit::try_pull);
}

void Unit::fail_waiting(const Error& error) {
  for (Waiting* const waiting : {&waiting_pushes_, &waiting_pulls_}) {
    for (const SharedCall& call : *waiting) refuse(*call, error);
    waiting->clear();
  }
}

void Unit::end(const Error& error) {
  fail_waiting(error);
  pushed_.clear();
  promises_.refuse(error);
  inbox_.begin(error);
  if (link_ != nullptr) link_->reset();
}

void Unit::begin_at(uint64_t first) {
  clock_ = UnitClock(options_.consistency, options_.workers, first);
  settle();
}

Unit::Report Unit::report() const {
  const auto waits_for_others = [&](const SharedCall& call) {
    return !clock_.waits_for_itself(call->worker, call->head.clock);
  };
  const auto pulls = static_cast<size_t>(std::ranges::count_if(waiting_pulls_, waits_for_others));
  return {.name = options_.name,
          .now = clock_.now(),
          .slowest = clock_.slowest(),
          .waiting = waiting_pushes_.size() + pulls,
          .size = state_->size(),
          .is_primary = place_.is_primary,
          .sequence = sequence_,
          .is_filling = is_filling()};
}

}  // namespace lockstep::server
