#include "agent/rpc/client_link.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "agent/comm/message_text.h"
#include "agent/rpc/lending.h"
#include "agent/rpc/make_link.h"
#include "agent/rpc/server_core.h"
#include "common/base/check.h"

namespace lockstep::rpc {
namespace {

ServedCall& served(void* owner) {
  return *static_cast<ServedCall*>(owner);
}

void refuse(ServedCall& call, Error why) {
  call.fate = CallFate::kRefuse;
  call.refusal = std::move(why);
}

}  // namespace

ClientLink::ClientLink(ServerCore& core, uint64_t number, Admitted admitted)
    : core_(core),
      number_(number),
      rank_(admitted.rank),
      name_(comm::rank_name(admitted.rank) + " from " + admitted.from),
      link_(make_link(core.options().self.encrypts, admitted.rank, std::move(admitted.fd),
                      admitted.secrets)),
      outbox_(core.options().limits.frame_bytes_max),
      inbox_({.sender = Side::kClient, .limits = &core.options().limits}),
      heard_at_(core.now()),
      sent_at_(core.now()) {}

Status ClientLink::on_event(bool readable, bool writable) {
  if (readable) {
    const Result<bool> more = inbox_.receive(*link_, *this, kTurnBytes);
    has_more_ = more.ok() && *more;
    if (inbox_.received() != heard_bytes_) {
      heard_bytes_ = inbox_.received();
      heard_at_ = core_.now();
    }
    TRY(more);
  }
  const std::lock_guard lock(core_.mutex);
  if (writable) watch_writes(false);
  if (!outbox_.is_empty()) flush();
  return broken_ ? Status(*broken_) : Status();
}

Status ClientLink::tick(TimePoint now) {
  if (broken_) return *broken_;
  const Limits& limits = core_.options().limits;
  if (now - heard_at_ >= limits.silence_limit) {
    return unavailable("was silent for " + comm::seconds_text(now - heard_at_));
  }
  if (session_ == nullptr || now - sent_at_ < limits.ping_every) return {};
  sent_at_ = now;
  outbox_.add_control({.kind = FrameKind::kPing});
  flush();
  return {};
}

void ClientLink::flush() {
  if (watches_writes_ || broken_) return;
  const Result<bool> all = outbox_.flush(*link_, kTurnBytes);
  sent_at_ = core_.now();
  const std::vector<OutMessage*> sent = std::exchange(outbox_.sent(), {});
  for (OutMessage* const message : sent) {
    ServedCall& call = served(message->owner);
    if (!call.word) core_.replied(call);
  }
  if (!all.ok()) {
    broken_ = all.error();
    core_.wake();
  } else if (!*all) {
    watch_writes(true);
  }
}

void ClientLink::watch_writes(bool wanted) {
  if (std::exchange(watches_writes_, wanted) == wanted) return;
  core_.poller().change(link_->fd(), number_, wanted);
}

void ClientLink::send(ServedCall& call) {
  call.is_replying = true;
  outbox_.add(&call.out);
}

void ClientLink::close() {
  inbox_.release_all();
  outbox_ = Outbox(core_.options().limits.frame_bytes_max);
  core_.poller().remove(link_->fd());
}

void ClientLink::count(ServedCall& call) {
  call.connection = number_;
  call.is_counted = true;
  ++calls_;
  bytes_ += call.bytes;
}

void ClientLink::uncount(ServedCall& call) {
  call.is_counted = false;
  --calls_;
  bytes_ -= call.bytes;
}

const PeerSegment* ClientLink::segment(uint32_t index) const {
  return index < segments_.size() && segments_[index] ? &*segments_[index] : nullptr;
}

Status ClientLink::on_control(const FrameHeader& header, Bytes payload) {
  if (header.kind == FrameKind::kPing) return {};
  const std::lock_guard lock(core_.mutex);
  if (header.kind == FrameKind::kOpen) return take_opening(payload);
  if (session_ == nullptr) return corrupt("sent other frames before its opening");
  switch (header.kind) {
    case FrameKind::kMapped:
      lendable_ = header.object;
      break;
    case FrameKind::kCancel:
      cancel(header.call);
      break;
    case FrameKind::kTaken:
      taken(header.call);
      break;
    case FrameKind::kRelease:
      core_.release_object(*session_, header.object);
      break;
    case FrameKind::kBye:
      is_leaving_ = true;
      return unavailable("said goodbye");
    default:
      break;
  }
  return {};
}

Status ClientLink::take_opening(Bytes payload) {
  if (session_ != nullptr) return corrupt("sent a second opening");
  Opening theirs;
  std::memcpy(static_cast<void*>(&theirs), payload.data(), sizeof theirs);
  TRY(check_opening(theirs, Side::kClient));
  TRY_ASSIGN(const ServerCore::Opened opened, core_.open_session(*this, rank_, theirs));
  session_ = opened.session;
  const Limits& limits = core_.options().limits;
  Opening ours{.client = theirs.client,
               .session = opened.state,
               .calls_max = limits.calls_max,
               .window_bytes = limits.window_bytes,
               .message_bytes_max = limits.message_bytes_max};
  if (core_.options().shares_memory) {
    if (theirs.segment_count > 0) segments_ = map_segments(theirs, ours.mapped);
    offer(core_.options().memory, ours);
  }
  outbox_.add_control({.kind = FrameKind::kOpened}, std::as_bytes(std::span(&ours, 1)));
  flush();
  return {};
}

Status ClientLink::check_windows(const FrameHeader& header) const {
  const Limits& limits = core_.options().limits;
  if (session_ == nullptr) return corrupt("sent other frames before its opening");
  if (header.total > limits.message_bytes_max) {
    return corrupt("sent a request of " + std::to_string(header.total) +
                   " bytes: expected at most " + std::to_string(limits.message_bytes_max));
  }
  if (calls_ >= limits.calls_max) {
    return corrupt("has more than " + std::to_string(limits.calls_max) + " calls under way");
  }
  if (calls_ > 0 && bytes_ + header.total > limits.window_bytes) {
    return corrupt("has requests of more than " + std::to_string(limits.window_bytes) +
                   " bytes under way");
  }
  return {};
}

// Decides what will become of the request. kCorrupt ends the connection.
Status ClientLink::judge(ServedCall& call, const FrameHeader& header) {
  call.method = core_.method(header.method);
  if (call.method == nullptr) {
    refuse(call, not_found("no such method"));
    return {};
  }
  const uint64_t body = header.total - header.head_bytes;
  const uint64_t body_max = call.method->options.body_bytes_max;
  if (body > body_max) {
    refuse(call, invalid("a body of " + std::to_string(body) + " bytes, expected at most " +
                         std::to_string(body_max)));
    return {};
  }
  if (header.object != 0) {
    const auto found = session_->objects.find(header.object);
    if (found == session_->objects.end()) {
      refuse(call, not_found("no object " + std::to_string(header.object)));
      return {};
    }
    call.object = found->second;
  }
  if (call.method->method->repeats == Repeats::kAllowed) return {};
  const Result<CallMemory::Seen> seen = core_.memory().begin(call.id, header.floor);
  if (!seen.ok()) {
    if (seen.error().code == Code::kCorrupt) return seen.error();
    refuse(call, seen.error());
    return {};
  }
  switch (*seen) {
    case CallMemory::Seen::kNew:
      call.is_begun = true;
      break;
    case CallMemory::Seen::kRunning:
    case CallMemory::Seen::kDone:
      call.fate = CallFate::kRepeat;
      break;
    case CallMemory::Seen::kFinished:
      refuse(call, conflict("the client has said that it would not repeat this call"));
      break;
  }
  return {};
}

void ClientLink::place_body(ServedCall& call, uint64_t body_bytes) {
  const auto& place = call.method->options.place;
  if (body_bytes == 0) return;
  if (!place) {
    call.body = call.allocate_body(body_bytes);
    call.in.into.push_back(call.body);
    return;
  }
  const Result<std::span<std::byte>> placed =
      place({.rank = rank_, .head = call.head, .body_bytes = body_bytes});
  if (!placed.ok()) return refuse(call, placed.error());
  CHECK(placed->size() >= body_bytes);
  call.body = placed->first(body_bytes);
  call.in.into.push_back(call.body);
}

Result<InMessage*> ClientLink::on_message(const FrameHeader& header, Bytes head) {
  std::unique_lock lock(core_.mutex);
  TRY(check_windows(header));
  ServedCall& call = core_.begin_call(*session_, number_);
  call.rank = rank_;
  call.id = {.client = session_->client, .number = header.call};
  call.floor = header.floor;
  call.bytes = header.total;
  count(call);
  call.head.assign(head.begin(), head.end());
  if (header.timeout_us > 0) {
    const auto most = std::chrono::microseconds(std::chrono::hours(24 * 365));
    const auto timeout = static_cast<int64_t>(
        std::min<uint64_t>(header.timeout_us, static_cast<uint64_t>(most.count())));
    call.deadline = core_.now() + std::chrono::microseconds(timeout);
  }
  const Status judged = judge(call, header);
  if (!judged.ok()) {
    core_.abandon(call);
    return judged.error();
  }
  call.is_receiving = true;
  lock.unlock();
  if (call.fate == CallFate::kExecute) place_body(call, header.total - header.head_bytes);
  if (call.fate != CallFate::kExecute) call.in.discards = true;
  return &call.in;
}

Status ClientLink::on_complete(InMessage& message) {
  ServedCall& call = served(message.owner);
  call.is_receiving = false;
  core_.execute(call);
  return {};
}

// The client has given the request up. If it had lent the body, it waits for an answer: it cannot
// know whether we had the whole body already.
Status ClientLink::on_aborted(InMessage& message) {
  ServedCall& call = served(message.owner);
  call.is_receiving = false;
  const bool was_lent = !message.pieces.empty();
  if (was_lent) {
    refuse(call, unavailable("cancelled"));
    core_.execute(call);
    return {};
  }
  const std::lock_guard lock(core_.mutex);
  core_.abandon(call);
  return {};
}

void ClientLink::cancel(uint64_t number) {
  ServedCall* const call = core_.find_call(*session_, number);
  if (call != nullptr) call->is_cancelled.store(true);
}

void ClientLink::taken(uint64_t number) {
  ServedCall* const call = core_.find_call(*session_, number);
  if (call != nullptr && call->is_replying && call->word && !call->out.is_queued) {
    core_.replied(*call);
  }
}

}  // namespace lockstep::rpc
