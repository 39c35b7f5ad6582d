// How a ServerCore executes and answers calls.
#include <algorithm>
#include <cstring>
#include <utility>

#include "agent/rpc/lending.h"
#include "agent/rpc/server_core.h"
#include "common/base/check.h"

namespace lockstep::rpc {
namespace {

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// As long as possible without cutting a character of UTF-8.
std::string_view cut(std::string_view text) {
  if (text.size() <= kErrorTextMax) return text;
  size_t end = kErrorTextMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

ServedCall& ServerCore::begin_call(Session& session, uint64_t number) {
  ServedCall* call = nullptr;
  if (free_states_.empty()) {
    call = &states_.emplace_back();
    call->core = this;
    call->in.owner = call->out.owner = call;
  } else {
    call = free_states_.back();
    free_states_.pop_back();
  }
  call->session = &session;
  call->connection = number;
  call->next = session.calls;
  if (session.calls != nullptr) session.calls->before = call;
  session.calls = call;
  return *call;
}

ServedCall* ServerCore::find_call(const Session& session, uint64_t number) const {
  for (ServedCall* call = session.calls; call != nullptr; call = call->next) {
    if (call->id.number == number && call->fate != CallFate::kRepeat) return call;
  }
  return nullptr;
}

void ServerCore::unlink(ServedCall& call) {
  if (call.session == nullptr) return;
  (call.before == nullptr ? call.session->calls : call.before->next) = call.next;
  if (call.next != nullptr) call.next->before = call.before;
  call.session = nullptr;
}

void ServerCore::recycle_if_over(ServedCall& call) {
  if (call.is_held || call.is_replying || call.is_receiving) return;
  if (call.is_counted) connection(call.connection)->uncount(call);
  unlink(call);
  if (call.object != nullptr) garbage_.push_back(std::move(call.object));
  if (call.on_free) deferred_.push_back(std::exchange(call.on_free, nullptr));
  call.clear();
  free_states_.push_back(&call);
}

void ServerCore::abandon(ServedCall& call) {
  if (call.is_begun) memory_.undo(call.id);
  recycle_if_over(call);
}

// The reply is out, or there is nobody to get it.
void ServerCore::replied(ServedCall& call) {
  end_loan(call.word, call.word_of);
  call.is_replying = false;
  if (call.on_free) {
    const bool is_awake = is_loop() || !deferred_.empty();
    deferred_.push_back(std::exchange(call.on_free, nullptr));
    if (!is_awake) wake();
  }
  if (call.is_counted) connection(call.connection)->uncount(call);
  recycle_if_over(call);
}

void ServerCore::execute(ServedCall& call) {
  std::unique_lock lock(mutex);
  if (call.fate == CallFate::kExecute && call.deadline && now() >= *call.deadline) {
    call.fate = CallFate::kRefuse;
    call.refusal = timed_out("the deadline passed before the request was here");
  }
  switch (call.fate) {
    case CallFate::kExecute:
      call.is_held = true;
      lock.unlock();
      call.method->handler(Request(&call));
      return;
    case CallFate::kRefuse:
      if (call.is_begun) memory_.undo(call.id);
      call.is_answered = true;
      return reply_error(call, call.refusal.code, call.refusal.message);
    case CallFate::kRepeat:
      break;
  }
  const CallOutcome* const outcome = memory_.outcome(call.id);
  if (outcome != nullptr) {
    call.is_answered = true;
    return send_outcome(call, *outcome);
  }
  ServedCall* const running = find_call(*call.session, call.id.number);
  ClientLink* const link = connection(call.connection);
  if (running == nullptr) {
    call.is_answered = true;
    return reply_error(call, Code::kUnavailable, "the call was begun, but not here");
  }
  // One reply for both.
  link->uncount(call);
  if (running->connection != link->number()) link->count(*running);
  recycle_if_over(call);
}

void ServerCore::remember(ServedCall& call, CallOutcome outcome) {
  if (call.is_begun) memory_.finish(call.id, std::move(outcome));
  call.is_begun = false;
}

void ServerCore::reply_error(ServedCall& call, Code code, std::string_view text) {
  const std::string_view said = cut(text);
  const auto number = static_cast<uint8_t>(1 + static_cast<int>(code));
  remember(call, {.code = number, .bytes = std::string(said)});
  send_outcome(call, {.code = number, .bytes = std::string(said)});
}

// Sends a short reply, from a copy.
void ServerCore::send_outcome(ServedCall& call, const CallOutcome& outcome) {
  ClientLink* const link = connection(call.connection);
  if (link == nullptr) return recycle_if_over(call);
  const Bytes bytes = std::as_bytes(std::span(outcome.bytes));
  call.out.clear();
  call.out.head.assign(bytes.begin(), bytes.end());
  call.out.header = {.kind = FrameKind::kReply,
                     .code = outcome.code,
                     .head_bytes = outcome.head_bytes,
                     .call = call.id.number,
                     .total = bytes.size()};
  if (outcome.code == 0 && outcome.head_bytes < bytes.size()) {
    call.copied.assign(bytes.begin() + outcome.head_bytes, bytes.end());
    call.out.head.resize(outcome.head_bytes);
    call.out.body.push_back(call.copied);
  }
  link->send(call);
  send_out(*link);
}

// Replies of the loop's own thread go out with its next turn.
void ServerCore::send_out(ClientLink& link) {
  if (is_loop()) return dirty_.push_back(link.number());
  if (bursts_ == 0) return link.flush();
  const TimePoint at = now();
  if (kept_.empty()) kept_since_ = at;
  if (kept_.empty() || kept_.back() != link.number()) kept_.push_back(link.number());
  if (link.added_bytes() >= kBurstBytes || at - kept_since_ >= kBurstTime) send_kept();
}

void ServerCore::send_kept() {
  for (const uint64_t number : std::exchange(kept_, {})) {
    ClientLink* const link = connection(number);
    if (link != nullptr) link->flush();
  }
}

void ServerCore::begin_burst() {
  const std::lock_guard lock(mutex);
  ++bursts_;
}

void ServerCore::end_burst() {
  const std::lock_guard lock(mutex);
  if (--bursts_ == 0) send_kept();
}

// Fills in the reply's header. An error is sent instead.
Status ServerCore::prepare_reply(ServedCall& call, const Answer& answer) {
  const uint64_t body = bytes_in(answer.body);
  if (answer.head.size() > kHeadMax) {
    return internal("a reply with a head of " + std::to_string(answer.head.size()) +
                    " bytes, expected at most " + std::to_string(kHeadMax));
  }
  const bool repeats = call.method->method->repeats == Repeats::kAllowed;
  if (!repeats && body > kCopiedBodyMax) {
    return internal("a reply of " + std::to_string(body) + " bytes to a call that never repeats, " +
                    "expected at most " + std::to_string(kCopiedBodyMax));
  }
  uint64_t object = 0;
  if (answer.object != nullptr && call.session != nullptr) {
    if (call.session->objects.size() >= options_.limits.objects_max) {
      return unavailable("the client has " + std::to_string(call.session->objects.size()) +
                         " objects here, the most that it may have");
    }
    object = call.session->next_object++;
    call.session->objects.emplace(object, answer.object);
  }
  call.out.clear();
  call.out.head.assign(answer.head.begin(), answer.head.end());
  call.out.header = {.kind = FrameKind::kReply,
                     .head_bytes = static_cast<uint16_t>(answer.head.size()),
                     .call = call.id.number,
                     .object = object,
                     .total = answer.head.size() + body};
  return {};
}

void ServerCore::send_reply(ServedCall& call, Answer& answer, std::function<void()>& freed) {
  ClientLink* const link = connection(call.connection);
  const uint64_t body = bytes_in(answer.body);
  if (body <= kCopiedBodyMax) {
    call.copied.clear();
    for (const Bytes part : answer.body) {
      call.copied.insert(call.copied.end(), part.begin(), part.end());
    }
    if (body > 0) call.out.body.push_back(call.copied);
    freed = std::move(answer.on_free);
    if (call.is_begun)
      remember(call,
               {.head_bytes = call.out.header.head_bytes,
                .bytes = std::string(text_of(answer.head)) + std::string(text_of(call.copied))});
  } else if (link != nullptr && !call.is_cancelled.load()) {
    const auto loan = make_loan(answer.body, options_.memory, link->lendable(),
                                options_.limits.lent_bytes_min, call.out);
    if (loan) {
      call.word = loan->word;
      call.word_of = loan->memory;
    } else {
      call.out.body.assign(answer.body.begin(), answer.body.end());
      std::erase_if(call.out.body, [](Bytes part) { return part.empty(); });
    }
    call.on_free = std::move(answer.on_free);
  } else {
    freed = std::move(answer.on_free);
    return reply_error(call, Code::kUnavailable, "cancelled");
  }
  if (link == nullptr) return recycle_if_over(call);
  link->send(call);
  send_out(*link);
}

void ServerCore::answer(ServedCall& call, Answer answer) {
  std::function<void()> freed;
  {
    const std::lock_guard lock(mutex);
    CHECK(!call.is_answered);
    call.is_answered = true;
    const Status prepared = prepare_reply(call, answer);
    if (prepared.ok()) {
      send_reply(call, answer, freed);
    } else {
      freed = std::move(answer.on_free);
      reply_error(call, prepared.error().code, prepared.error().message);
    }
  }
  if (freed) freed();
}

void ServerCore::fail(ServedCall& call, Code code, std::string_view text) {
  const std::lock_guard lock(mutex);
  CHECK(!call.is_answered);
  call.is_answered = true;
  reply_error(call, code, text);
}

void ServerCore::let_go(ServedCall& call) {
  const std::lock_guard lock(mutex);
  if (!std::exchange(call.is_answered, true)) {
    reply_error(call, Code::kInternal, "the server's handler has not answered");
  }
  call.is_held = false;
  recycle_if_over(call);
}

}  // namespace lockstep::rpc
