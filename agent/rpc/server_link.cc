#include "agent/rpc/server_link.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "agent/comm/message_text.h"
#include "agent/rpc/client_core.h"
#include "agent/rpc/lending.h"
#include "agent/rpc/make_link.h"
#include "common/base/check.h"

namespace lockstep::rpc {
namespace {

CallState& call_of(void* owner) {
  return *static_cast<CallState*>(owner);
}

}  // namespace

ServerLink::ServerLink(ClientCore& core, uint64_t tag, Client::ServerAddress server)
    : core_(core),
      tag_(tag),
      server_(std::move(server)),
      name_(comm::rank_name(server_.rank) + " at " + comm::to_string(server_.address)),
      outbox_(core.options().limits.frame_bytes_max),
      inbox_({.sender = Side::kServer, .limits = &core.options().limits}) {}

Error ServerLink::about(const CallState& call, Code code, const std::string& what) const {
  return {code, "[rpc] " + name_ + ": " + call.method->name + ": " + what, Blame::kPeer};
}

std::string ServerLink::path() const {
  if (state_ != State::kUp) return "";
  return link_->describe() + (lendable_ != 0 || !segments_.empty() ? ", shared memory" : "");
}

// --- Calls ---

void ServerLink::enqueue(CallState& call) {
  call.phase = CallPhase::kQueued;
  call.next = nullptr;
  if (has_orphan(call.number)) {
    held_back_.push_back(&call);
    return;
  }
  (last_ == nullptr ? first_ : last_->next) = &call;
  last_ = &call;
  ++queued_;
  if (state_ == State::kUp) {
    pump();
  } else if (state_ == State::kIdle) {
    core_.wake();
  }
}

void ServerLink::push_front(CallState& call) {
  call.phase = CallPhase::kQueued;
  call.next = first_;
  first_ = &call;
  if (last_ == nullptr) last_ = &call;
  ++queued_;
}

bool ServerLink::has_room(const CallState& call) const {
  if (calls_ >= calls_max_) return false;
  return calls_ == 0 || bytes_ + call.request_bytes <= window_bytes_;
}

void ServerLink::pump() {
  while (state_ == State::kUp && first_ != nullptr && has_room(*first_)) {
    CallState& call = *first_;
    first_ = call.next;
    if (first_ == nullptr) last_ = nullptr;
    --queued_;
    start(call);
  }
  const bool is_kept = core_.is_in_burst() && outbox_.added_bytes() < kBurstBytes;
  if (!is_kept) flush();
}

void ServerLink::send_kept() {
  if (outbox_.added_bytes() > 0) flush();
}

// Begins to send the call.
void ServerLink::start(CallState& call) {
  if (call.request_bytes > message_bytes_max_) {
    call.phase = CallPhase::kAnswered;
    core_.complete(call,
                   about(call, Code::kInvalid,
                         "a request of " + std::to_string(call.request_bytes) +
                             " bytes, expected at most " + std::to_string(message_bytes_max_)),
                   false);
    return core_.settle(call);
  }
  OutMessage& out = call.out;
  out.clear();
  out.head = call.request_head;
  out.header = {.kind = FrameKind::kRequest,
                .head_bytes = static_cast<uint16_t>(call.request_head.size()),
                .call = call.number,
                .method = call.method->id,
                .object = call.object,
                .total = call.request_bytes,
                .floor = core_.floor()};
  if (call.deadline) {
    const auto rest = std::chrono::ceil<std::chrono::microseconds>(*call.deadline - core_.now());
    out.header.timeout_us = static_cast<uint64_t>(std::max<int64_t>(rest.count(), 1));
  }
  if (!lend(call)) out.body = call.body;
  call.phase = CallPhase::kSending;
  call.was_sent = true;
  call.is_counted = true;
  ++calls_;
  bytes_ += call.request_bytes;
  outbox_.add(&out);
}

bool ServerLink::lend(CallState& call) {
  const auto& memory = core_.options().memory;
  const auto loan =
      make_loan(call.body, memory, lendable_, core_.options().limits.lent_bytes_min, call.out);
  if (!loan) return false;
  call.word = loan->word;
  call.word_of = loan->memory;
  return true;
}

bool ServerLink::has_orphan(uint64_t number) const {
  return std::any_of(orphans_.begin(), orphans_.end(),
                     [number](const CallState* orphan) { return orphan->number == number; });
}

void ServerLink::uncount(CallState& call) {
  if (std::erase(orphans_, &call) > 0) {
    const auto repeats = std::find_if(
        held_back_.begin(), held_back_.end(),
        [&call](const CallState* candidate) { return candidate->number == call.number; });
    if (repeats != held_back_.end()) {
      CallState& held_back = **repeats;
      held_back_.erase(repeats);
      enqueue(held_back);
    }
  }
  if (!std::exchange(call.is_counted, false)) return;
  --calls_;
  bytes_ -= call.request_bytes;
  if (first_ != nullptr) core_.tick_again();
}

bool ServerLink::withdraw(CallState& call) {
  end_loan(call.word, call.word_of);
  switch (call.phase) {
    case CallPhase::kQueued: {
      if (std::erase(held_back_, &call) > 0) return true;
      CallState** at = &first_;
      CallState* before = nullptr;
      while (*at != &call) {
        before = *at;
        at = &(*at)->next;
      }
      *at = call.next;
      if (last_ == &call) last_ = before;
      --queued_;
      return true;
    }
    case CallPhase::kSending:
      outbox_.drop(&call.out);
      flush();
      if (!call.is_receiving) return true;
      call.phase = CallPhase::kSent;  // the server has refused it, and says so
      Inbox::discard(call.in);
      return false;
    case CallPhase::kSent:
      if (call.is_receiving) Inbox::discard(call.in);
      send_control(FrameKind::kCancel, call.number, 0);
      return false;
    case CallPhase::kAnswered:
      break;
  }
  return true;
}

void ServerLink::send_control(FrameKind kind, uint64_t call, uint64_t object) {
  if (state_ != State::kUp) return;
  outbox_.add_control({.kind = kind, .call = call, .object = object});
  flush();
}

void ServerLink::release_object(uint64_t object) {
  if (objects_ > 0) --objects_;
  send_control(FrameKind::kRelease, 0, object);
}

void ServerLink::flush() {
  if (link_ == nullptr || watches_writes_ || broken_.has_value()) return;
  const Result<bool> all = outbox_.flush(*link_, kTurnBytes);
  for (OutMessage* const message : outbox_.sent()) {
    CallState& call = call_of(message->owner);
    if (call.phase == CallPhase::kSending) call.phase = CallPhase::kSent;
  }
  outbox_.sent().clear();
  sent_at_ = core_.now();
  if (!all.ok()) {
    broken_ = all.error();
    core_.wake();
  } else if (!*all) {
    watch_writes(true);
  }
}

void ServerLink::watch_writes(bool wanted) {
  if (std::exchange(watches_writes_, wanted) == wanted) return;
  core_.poller().change(link_->fd(), tag_, wanted);
}

// --- Replies ---

const PeerSegment* ServerLink::segment(uint32_t index) const {
  return index < segments_.size() && segments_[index] ? &*segments_[index] : nullptr;
}

CallState* ServerLink::find_call(uint64_t number) {
  CallState* const call = core_.find(number);
  const auto is_here = [this](const CallState& candidate) {
    return candidate.link == this && !candidate.is_receiving &&
           (candidate.phase == CallPhase::kSending || candidate.phase == CallPhase::kSent);
  };
  if (call != nullptr && is_here(*call)) return call;
  for (CallState* const orphan : orphans_) {
    if (orphan->number == number && is_here(*orphan)) return orphan;
  }
  return nullptr;
}

InMessage* ServerLink::discard_record() {
  for (const auto& record : unknown_) {
    if (!inbox_.has(*record)) return record.get();
  }
  if (unknown_.size() >= calls_max_) return nullptr;
  return unknown_.emplace_back(std::make_unique<InMessage>()).get();
}

Result<InMessage*> ServerLink::on_message(const FrameHeader& header, Bytes head) {
  const std::lock_guard lock(core_.mutex);
  if (state_ != State::kUp) return corrupt("answered before its opening");
  CallState* const call = find_call(header.call);
  if (call != nullptr) return begin_reply(*call, header, head);
  if (header.call >= core_.next()) return corrupt("answered a call that was not made");
  InMessage* const record = discard_record();
  if (record == nullptr) return corrupt("sent too many answers to calls that are finished");
  record->clear();
  record->discards = true;
  return record;
}

Result<InMessage*> ServerLink::begin_reply(CallState& call, const FrameHeader& header, Bytes head) {
  InMessage& in = call.in;
  in.clear();
  call.is_receiving = true;
  call.code = header.code;
  call.lent_reply = header.pieces > 0;
  if (call.done.load() != 0) {
    in.discards = true;
    return &in;
  }
  call.head.assign(head.begin(), head.end());
  call.object = header.object;
  call.body_bytes = header.code != 0 ? 0 : header.total - header.head_bytes;
  if (call.object != 0) ++objects_;
  uint64_t room = 0;
  for (const std::span<std::byte> part : call.into) room += part.size();
  if (call.into.empty()) room = call.reply_bytes_max;
  if (call.body_bytes > room) {
    call.status = about(call, Code::kInvalid,
                        "a reply of " + std::to_string(call.body_bytes) +
                            " bytes, expected at most " + std::to_string(room));
    in.discards = true;
    return &in;
  }
  in.into = call.into;
  if (call.into.empty() && call.body_bytes > 0) {
    in.into.push_back(call.allocate_body());
  }
  return &in;
}

Status ServerLink::on_complete(InMessage& message) {
  const std::lock_guard lock(core_.mutex);
  if (message.owner == nullptr) return {};
  CallState& call = call_of(message.owner);
  call.is_receiving = false;
  if (call.lent_reply) send_control(FrameKind::kTaken, call.number, 0);
  if (call.code != 0 && call.done.load() == 0) {
    const std::string text(reinterpret_cast<const char*>(call.head.data()), call.head.size());
    call.head.clear();
    call.status = about(call, static_cast<Code>(call.code - 1), text);
  }
  answered(call, call.status);
  return {};
}

Status ServerLink::on_aborted(InMessage& message) {
  const std::lock_guard lock(core_.mutex);
  if (message.owner == nullptr) return {};
  CallState& call = call_of(message.owner);
  call.is_receiving = false;
  if (call.lent_reply) send_control(FrameKind::kTaken, call.number, 0);
  answered(call, about(call, Code::kUnavailable, "the server took its reply back"));
  return {};
}

void ServerLink::answered(CallState& call, Status status) {
  outbox_.drop(&call.out);
  end_loan(call.word, call.word_of);
  call.phase = CallPhase::kAnswered;
  core_.complete(call, std::move(status), false);
  core_.settle(call);
  pump();
}

}  // namespace lockstep::rpc
