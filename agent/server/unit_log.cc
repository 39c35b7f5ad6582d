// The log of a unit: its entries, their way along the chain, and what a copy does with them.
#include <algorithm>
#include <utility>

#include "agent/server/limits.h"
#include "agent/server/unit.h"

namespace lockstep::server {

void Unit::set_place(const Place& place) {
  inbox_.begin(conflict("[server] there is another view now (" + options_.name + ")"));
  acknowledged();  // by the chain so far
  place_ = place;
  fill_ = place.next_joins ? Fill::kWaits : Fill::kNone;
  if (place.next && link_ == nullptr) {
    link_ = std::make_shared<ChainLink>(ChainLink::Options{
        .name = options_.name, .post = options_.post, .on_progress = [this] { on_progress(); }});
  }
  // A server that joins gets everything from the beginning.
  if (link_ != nullptr && (!place.next || place.next_joins)) link_->reset();
  if (place.next) link_->aim(*place.next, place.fence);
  try_begin_fill();
  on_progress();
}

uint64_t Unit::acknowledged() {
  const bool waits_for_next = place_.next && (fill_ == Fill::kNone || fill_ == Fill::kDone);
  if (waits_for_next) {
    acknowledged_ = std::max(acknowledged_, link_->acknowledged());
  } else if (!place_.next || link_->kept_bytes() <= kFillLagMax) {
    acknowledged_ = sequence_;
  }
  return acknowledged_;
}

void Unit::promise(uint64_t sequence, Promises::Answer answer) {
  if (acknowledged() >= sequence && promises_.size() == 0) return answer({});
  promises_.add(sequence, std::move(answer));
}

void Unit::on_progress() {
  promises_.keep(acknowledged());
  if (fill_ == Fill::kGoesOn && !link_->sends_state()) fill_more();
}

void Unit::log(CopyHead head, std::vector<rpc::Bytes> body, std::shared_ptr<const void> owner) {
  head.sequence = ++sequence_;
  pass_on(head, std::move(body), std::move(owner));
}

void Unit::pass_on(CopyHead head, std::vector<rpc::Bytes> body, std::shared_ptr<const void> owner) {
  if (!place_.next || fill_ == Fill::kWaits) return;
  head.call.kind = options_.id.kind;
  head.call.unit = options_.id.index;
  head.call.slot = options_.id.slot;
  std::erase_if(body, [](rpc::Bytes part) { return part.empty(); });
  link_->send({.head = head, .body = std::move(body), .owner = std::move(owner)});
}

void Unit::log_push(const SharedCall& call) {
  CopyHead head{.kind = CopyKind::kPush, .worker = call->worker, .call = call->head};
  head.call.flags = call->keys == nullptr ? uint16_t{0} : CallHead::kSendsKeys;
  log(head, {std::as_bytes(call->key_span()), call->sent}, call);
}

void Unit::apply_push(const SharedCall& call) {
  if (!clock_.is_synchronous()) {
    update(std::span(&call, 1));
    return clock_.take_push(call->worker, call->head.clock);
  }
  clock_.take_push(call->worker, call->head.clock);
  const auto place = std::ranges::upper_bound(pushed_, call->worker, {},
                                              [](const auto& other) { return other->worker; });
  pushed_.insert(place, call);
  if (clock_.is_step_complete()) return finish_step();
  record_other();
}

void Unit::finish_step() {
  update(pushed_);
  pushed_.clear();
  clock_.begin_next_step();
}

void Unit::update(std::span<const SharedCall> pushes) {
  std::vector<uint32_t> workers;
  std::vector<Gradient> gradients;
  for (const SharedCall& push : pushes) {
    workers.push_back(push->worker);
    gradients.push_back({.keys = push->key_span(), .values = push->values});
  }
  const UpdateStep step{.learning_rate = pushes.front()->head.learning_rate, .now = clock_.now()};
  if (options_.recorder) {
    options_.recorder({.kind = HistoryEvent::Kind::kUpdate,
                       .unit = options_.id,
                       .view = place_.fence.number,
                       .sequence = sequence_,
                       .now = step.now,
                       .clock = pushes.front()->head.clock,
                       .workers = workers,
                       .gradients = gradients,
                       .learning_rate = step.learning_rate});
  }
  state_->update(gradients, step);
}

void Unit::record_expiry(std::span<const uint64_t> keys) {
  if (!options_.recorder) return;
  options_.recorder({.kind = HistoryEvent::Kind::kExpiry,
                     .unit = options_.id,
                     .view = place_.fence.number,
                     .sequence = sequence_,
                     .now = clock_.now(),
                     .keys = keys});
}

void Unit::record_other() {
  if (!options_.recorder) return;
  options_.recorder({.kind = HistoryEvent::Kind::kOther,
                     .unit = options_.id,
                     .view = place_.fence.number,
                     .sequence = sequence_,
                     .now = clock_.now()});
}

void Unit::apply_workers(std::span<const uint32_t> workers) {
  workers_.assign(workers.begin(), workers.end());
  clock_.set_workers(workers);
  std::erase_if(pushed_, [&](const SharedCall& push) {
    return !std::ranges::binary_search(workers, push->worker);
  });
  if (clock_.is_synchronous() && !pushed_.empty() && clock_.is_step_complete()) {
    return finish_step();
  }
  record_other();
}

void Unit::set_workers(std::span<const uint32_t> workers) {
  if (!place_.is_primary) return;
  if (!std::ranges::equal(workers, workers_)) {
    const auto list = std::make_shared<const std::vector<uint32_t>>(workers.begin(), workers.end());
    log({.kind = CopyKind::kWorkers}, {std::as_bytes(std::span(*list))}, list);
    apply_workers(*list);
    try_begin_fill();
  }
  settle();
}

void Unit::receive(CopyMessage message) {
  inbox_.add(std::move(message));
  while (const auto next = inbox_.next()) take_copy(*next);
}

void Unit::take_copy(const CopyMessage& message) {
  const auto refuse_message = [&](const Error& error) { refuse(*message.call, error); };
  if (message.head.kind >= CopyKind::kBegin) {
    const Status taken =
        message.head.kind == CopyKind::kBegin ? begin_as(message) : take_part(message);
    if (!taken.ok()) return refuse_message(taken.error());
    return message.call->request.answer({});
  }
  // A server that does not know how far this one is repeats entries.
  if (message.head.sequence > sequence_) {
    if (const Status applied = apply(message); !applied.ok())
      return refuse_message(applied.error());
  }
  promise(message.head.sequence, [this, call = message.call](const Status& status) {
    if (!status.ok()) return refuse(*call, status.error());
    call->request.answer({});
  });
}

Status Unit::apply(const CopyMessage& message) {
  const CopyHead& head = message.head;
  const SharedCall& call = message.call;
  if (head.sequence != sequence_ + 1) {
    return conflict("[server] expected entry " + std::to_string(sequence_ + 1) + ", got " +
                    std::to_string(head.sequence));
  }
  switch (head.kind) {
    case CopyKind::kPush:
      return apply_copied_push(message);
    case CopyKind::kPut:
      if (is_whole_) TRY(state_->put(call->values));
      log(head, {call->sent}, call);
      record(*call, {.kind = HistoryEvent::Kind::kPut, .values = call->values});
      return {};
    case CopyKind::kExpiry:
      log(head, {call->request.body()}, call);
      state_->expire(call->key_span());
      record_expiry(call->key_span());
      return {};
    case CopyKind::kWorkers: {
      TRY_ASSIGN(const std::vector<uint32_t> workers, parse_ranks(call->request.body()));
      if (workers.empty() || workers.size() > kWorkersMax || !std::ranges::is_sorted(workers)) {
        return invalid("[server] expected workers in ascending order");
      }
      log(head, {call->request.body()}, call);
      apply_workers(workers);
      return {};
    }
    case CopyKind::kBegin:
    case CopyKind::kPart:
      break;
  }
  return invalid("[server] expected an entry of a log");
}

Status Unit::apply_copied_push(const CopyMessage& message) {
  const SharedCall& call = message.call;
  TRY_ASSIGN(const UnitClock::Verdict verdict, clock_.judge_push(call->worker, call->head.clock));
  if (verdict == UnitClock::Verdict::kWait) {
    return conflict("[server] expected a push that need not wait, got clock " +
                    std::to_string(call->head.clock) + " of rank " + std::to_string(call->worker));
  }
  if (verdict == UnitClock::Verdict::kLate) {
    log_push(call);
    clock_.take_push(call->worker, call->head.clock);
    record_other();
    return {};
  }
  TRY(state_->use(call->key_span(), clock_.now()));
  log_push(call);
  apply_push(call);
  try_begin_fill();
  return {};
}

}  // namespace lockstep::server
