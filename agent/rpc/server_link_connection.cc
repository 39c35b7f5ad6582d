// How a ServerLink makes, keeps and loses its connection.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "agent/comm/message_text.h"
#include "agent/rpc/client_core.h"
#include "agent/rpc/lending.h"
#include "agent/rpc/make_link.h"
#include "agent/rpc/server_link.h"

namespace lockstep::rpc {
namespace {

constexpr Duration kRetryMin = std::chrono::milliseconds(2);
constexpr Duration kRetryMax = std::chrono::milliseconds(250);

}  // namespace

void ServerLink::begin_dial(TimePoint now) {
  Result<comm::UniqueFd> fd = comm::begin_connect(server_.address);
  if (!fd.ok()) return retry(fd.error().message);
  comm::tune_stream(fd->get());
  const Status watched = core_.poller().add(fd->get(), tag_, true);
  if (!watched.ok()) return retry(watched.error().message);
  const Digest nonce = core_.options().nonce();
  pending_.emplace(comm::Pending{
      .fd = std::move(*fd),
      .from = name_,
      .handshake = comm::Handshake::client(
          core_.options().self, nonce, {.rank = server_.rank, .channel = comm::Channel::kCalls}),
      .until = now + core_.options().limits.handshake_limit,
      .connecting = true});
  state_ = State::kHandshake;
}

// Tries again later. Keeps what a server that has answered said, which tells more than that it is
// gone now.
void ServerLink::retry(const std::string& why) {
  close();
  failure_ = why;
  state_ = State::kWaiting;
  next_dial_ = core_.now() + backoff_;
  backoff_ = std::clamp(backoff_ * 2, kRetryMin, kRetryMax);
}

void ServerLink::advance_dial() {
  pending_->ready = true;
  const Result<comm::Advance> advanced = comm::advance(*pending_);
  if (!advanced.ok()) {
    if (advanced.error().code != Code::kConflict) return retry(advanced.error().message);
    return fail_all(advanced.error());
  }
  if (*advanced == comm::Advance::kDone) return establish();
  const bool writes = pending_->connecting || !pending_->handshake.output().empty();
  core_.poller().change(pending_->fd.get(), tag_, writes);
}

void ServerLink::establish() {
  const comm::SessionSecrets secrets = pending_->handshake.secrets();
  link_ = make_link(core_.options().self.encrypts, server_.rank, std::move(pending_->fd), secrets);
  pending_.reset();
  state_ = State::kOpening;
  core_.poller().change(link_->fd(), tag_, false);
  watches_writes_ = false;
  heard_at_ = core_.now();
  heard_bytes_ = 0;
  Opening opening{.client = core_.client(), .session = has_session_ ? uint32_t{1} : 0};
  if (server_.on_this_host) offer(core_.options().memory, opening);
  outbox_.add_control({.kind = FrameKind::kOpen}, std::as_bytes(std::span(&opening, 1)));
  flush();
}

Status ServerLink::on_control(const FrameHeader& header, Bytes payload) {
  if (header.kind == FrameKind::kPing) return {};
  const std::lock_guard lock(core_.mutex);
  return take_opened(header, payload);
}

Status ServerLink::take_opened(const FrameHeader&, Bytes payload) {
  if (state_ != State::kOpening) return corrupt("sent a second opening");
  Opening opening;
  std::memcpy(static_cast<void*>(&opening), payload.data(), sizeof opening);
  TRY(check_opening(opening, Side::kServer));
  if (opening.client != core_.client()) return corrupt("opened for another client");
  if (opening.session == kSessionsFull) return conflict("it has no room for another client");
  if (opening.session == kSessionUnknown) {
    has_session_ = false;
    fail_executed_calls();
    return unavailable("it no longer knew this client");
  }
  has_session_ = true;
  calls_max_ = opening.calls_max;
  window_bytes_ = opening.window_bytes;
  message_bytes_max_ = opening.message_bytes_max;
  if (server_.on_this_host) {
    uint64_t mapped = 0;
    segments_ = map_segments(opening, mapped);
    lendable_ = opening.mapped;
    outbox_.add_control({.kind = FrameKind::kMapped, .object = mapped});
  }
  state_ = State::kUp;
  backoff_ = Duration::zero();
  failure_.clear();
  pump();
  return {};
}

// Fails what the server may have executed and no longer remembers.
void ServerLink::fail_executed_calls() {
  core_.for_each_unfinished([this](CallState& call) {
    const bool is_lost = call.link == this && call.was_sent && call.done.load() == 0 &&
                         call.method->repeats == Repeats::kNever;
    if (!is_lost) return;
    const bool is_over = withdraw(call);
    core_.complete(call,
                   about(call, Code::kUnavailable,
                         "the server no longer knows this client, and may have executed the call"),
                   true);
    if (is_over) {
      call.phase = CallPhase::kAnswered;
      core_.settle(call);
    }
  });
}

void ServerLink::on_event(bool readable, bool writable) {
  {
    const std::lock_guard lock(core_.mutex);
    if (state_ == State::kHandshake) return advance_dial();
  }
  if (link_ == nullptr) return;
  if (readable) {
    const Result<bool> more = inbox_.receive(*link_, *this, kTurnBytes);
    const std::lock_guard lock(core_.mutex);
    has_more_ = more.ok() && *more;
    if (inbox_.received() != heard_bytes_) {
      heard_bytes_ = inbox_.received();
      heard_at_ = core_.now();
    }
    if (!more.ok()) return lost(more.error());
  }
  const std::lock_guard lock(core_.mutex);
  if (writable) watch_writes(false);
  if (!outbox_.is_empty()) flush();
}

void ServerLink::close() {
  if (pending_) core_.poller().remove(pending_->fd.get());
  if (link_ != nullptr) core_.poller().remove(link_->fd());
  pending_.reset();
  link_.reset();
  broken_.reset();
  has_more_ = false;
  lendable_ = 0;
  inbox_.release_all();
  inbox_ = Inbox({.sender = Side::kServer, .limits = &core_.options().limits});
  outbox_ = Outbox(core_.options().limits.frame_bytes_max);
  take_back_calls();
  segments_.clear();
}

// Calls that were sent and not answered go back to the queue, in their order.
void ServerLink::take_back_calls() {
  std::vector<CallState*> calls = orphans_;
  core_.for_each_unfinished([&](CallState& call) {
    if (call.link == this && call.phase != CallPhase::kQueued) calls.push_back(&call);
  });
  std::sort(calls.begin(), calls.end(),
            [](const CallState* a, const CallState* b) { return a->number > b->number; });
  for (CallState* const call : calls) {
    end_loan(call->word, call->word_of);
    call->is_receiving = false;
    call->in.clear();
    call->out.clear();
    uncount(*call);
    if (call->phase == CallPhase::kAnswered) continue;
    if (call->done.load() == 0) {
      push_front(*call);
      continue;
    }
    call->phase = CallPhase::kAnswered;
    core_.settle(*call);
  }
}

// The connection is gone. Calls are repeated on another one, unless that would not help.
void ServerLink::lost(const Error& error) {
  if (error.code == Code::kCorrupt || error.code == Code::kConflict) return fail_all(error);
  const bool was_up = state_ == State::kUp;
  retry(error.message);
  if (!was_up) return;
  unreachable_since_ = core_.now();
  backoff_ = kRetryMin;
  next_dial_ = unreachable_since_;
}

void ServerLink::fail_all(const Error& error) {
  close();
  state_ = State::kIdle;
  backoff_ = Duration::zero();
  failure_.clear();
  core_.for_each_unfinished([&](CallState& call) {
    if (call.link != this || call.done.load() != 0) return;
    withdraw(call);
    call.phase = CallPhase::kAnswered;
    core_.complete(call, about(call, error.code, error.message), true);
    core_.settle(call);
  });
}

void ServerLink::finish() {
  if (state_ == State::kUp) {
    outbox_.add_control({.kind = FrameKind::kBye});
    flush();
  }
  close();
  state_ = State::kIdle;
  has_session_ = false;
}

void ServerLink::watch_silence(TimePoint now) {
  const Limits& limits = core_.options().limits;
  if (now - heard_at_ >= limits.silence_limit) {
    return lost(unavailable("was silent for " + comm::seconds_text(now - heard_at_)));
  }
  if (state_ != State::kUp || now - sent_at_ < limits.ping_every) return;
  sent_at_ = now;
  send_control(FrameKind::kPing, 0, 0);
}

TimePoint ServerLink::tick(TimePoint now) {
  const Limits& limits = core_.options().limits;
  if (leave_reason_) {
    finish();
    fail_all(unavailable(*std::exchange(leave_reason_, {})));
    objects_ = 0;
  }
  if (broken_) lost(*std::exchange(broken_, {}));
  if (state_ == State::kIdle && first_ != nullptr) {
    unreachable_since_ = now;
    begin_dial(now);
  } else if (state_ == State::kHandshake && now >= pending_->until) {
    retry(pending_->connecting ? "no answer" : "handshake timed out");
  } else if (state_ == State::kOpening || state_ == State::kUp) {
    watch_silence(now);
    pump();
  }
  if (state_ == State::kWaiting) {
    if (now - unreachable_since_ >= limits.reconnect_limit) {
      fail_all(unavailable("could not be reached for " +
                           comm::seconds_text(now - unreachable_since_) + ": " + failure_));
      objects_ = 0;
    } else if (now >= next_dial_) {
      begin_dial(now);
    }
  }
  switch (state_) {
    case State::kIdle:
      return TimePoint::max();
    case State::kWaiting:
      return std::min(next_dial_, unreachable_since_ + limits.reconnect_limit);
    case State::kHandshake:
      return pending_->until;
    case State::kOpening:
      return heard_at_ + limits.silence_limit;
    case State::kUp:
      break;
  }
  return std::min(heard_at_ + limits.silence_limit, sent_at_ + limits.ping_every);
}

}  // namespace lockstep::rpc
