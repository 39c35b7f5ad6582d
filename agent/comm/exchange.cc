#include "agent/comm/exchange.h"

#include <cstdio>

namespace lockstep {
namespace {

// How long an operation whose connection broke waits for the control connections to say who it was
// that ended: the other end may only have closed because of a third.
constexpr Duration kVerdictLimit = std::chrono::milliseconds(300);

TimePoint now() {
  return SystemClock().now();
}

std::string seconds_text(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", to_seconds(duration));
  return text;
}

std::string rank_name(int rank) {
  return "rank " + std::to_string(rank);
}

}  // namespace

Link& Exchange::link(int group_rank) const {
  return core_.link(operation_.group->ranks[static_cast<size_t>(group_rank)]);
}

FrameHeader Exchange::header(const Part& part) const {
  FrameHeader header = operation_.header;
  header.step = part.step;
  header.bytes = part.bytes;
  return header;
}

Outgoing Exchange::outgoing(const Part& part, const std::byte* payload) const {
  return {link(part.peer), header(part), payload};
}

Incoming Exchange::incoming(const Part& part, const Sink& sink) const {
  return {link(part.peer), header(part), sink};
}

Status Exchange::send(Outgoing& frame, size_t ready) {
  if (frame.done()) return {};
  in_hand_ = frame.link().peer();
  TRY_ASSIGN(const bool moved, frame.advance(ready));
  moved_ = moved_ || moved;
  if (frame.done()) {
    core_.count_sent(frame.bytes());
  } else if (frame.blocked(ready)) {
    interests_.push_back({.link = &frame.link(), .input = false});
  }
  return {};
}

Status Exchange::receive(Incoming& frame) {
  if (frame.done()) return {};
  in_hand_ = frame.link().peer();
  TRY_ASSIGN(const bool moved, frame.advance());
  moved_ = moved_ || moved;
  if (frame.done()) {
    core_.count_received(frame.bytes());
  } else {
    interests_.push_back({.link = &frame.link(), .input = true, .missing = frame.missing()});
  }
  return {};
}

void Exchange::begin_step() {
  interests_.clear();
  moved_ = false;
}

bool Exchange::waits_for_one_who_left(int* who) const {
  for (const Interest& interest : interests_) {
    // Over TCP the end of the stream says so, behind all that was sent before it.
    if (interest.link->fd() >= 0 || !core_.control()->left(interest.link->peer())) continue;
    *who = interest.link->peer();
    return true;
  }
  return false;
}

bool Exchange::wait() {
  if (moved_) {
    if (waiting_) core_.waiter().moved();
    waiting_ = false;
    looked_after_leaving_ = false;
    return true;
  }
  int who = -1;
  if (waits_for_one_who_left(&who)) {
    if (looked_after_leaving_) {
      core_.fail({.reason = rank_name(who) + " left", .suspect = who});
      return false;
    }
    looked_after_leaving_ = true;
    return true;
  }
  if (!waiting_) {
    waiting_ = true;
    waiting_since_ = now();
  }
  const Duration silent = now() - waiting_since_;
  if (silent >= operation_.limit) {
    blame_silence(silent);
    return false;
  }
  core_.waiter().pause(interests_, operation_.limit - silent);
  return true;
}

// Names, in this order: a rank that has given no sign of life at all, the rank that is furthest
// behind in the collectives of the world, the rank that this one waits for.
void Exchange::blame_silence(Duration silent) {
  const Control& control = *core_.control();
  const Duration unheard_of = 4 * control.heartbeat();
  int mute = -1;
  int behind = -1;
  Duration longest = unheard_of;
  uint64_t least = operation_.header.sequence;
  for (const int rank : operation_.group->ranks) {
    if (rank == core_.rank()) continue;
    const Control::Health health = control.health(rank);
    if (health.silent >= longest) {
      longest = health.silent;
      mute = rank;
    }
    if (operation_.group->id == 0 && health.entered < least) {
      least = health.entered;
      behind = rank;
    }
  }
  const int waited_for = interests_.empty() ? -1 : interests_.front().link->peer();
  const int suspect = mute >= 0 ? mute : behind >= 0 ? behind : waited_for;
  std::string reason = rank_name(suspect) + " silent for " + seconds_text(silent);
  if (mute >= 0) {
    reason += ", and without a sign of life for " + seconds_text(longest);
  } else if (behind >= 0) {
    reason += ": it is alive, but the last collective that it entered is #" + std::to_string(least);
  }
  core_.fail({.code = Code::kTimeout, .reason = reason, .suspect = suspect});
}

Status Exchange::stop() {
  core_.waiter().moved();
  return core_.error_of(operation_);
}

Status Exchange::blame(const Error& error) {
  Fault fault{.code = error.code, .reason = error.message, .suspect = in_hand_};
  if (error.code == Code::kConflict) {
    fault.reason = rank_name(core_.rank()) + " is " + error.message;
  } else if (error.code == Code::kUnavailable) {
    const TimePoint until = now() + kVerdictLimit;
    while (!core_.control()->left(in_hand_) && now() < until &&
           !core_.fault().wait_for(std::chrono::milliseconds(2))) {
    }
    const bool left = core_.control()->left(in_hand_);
    fault.reason = rank_name(in_hand_) + (left ? " left" : " is gone: " + error.message);
  }
  core_.fail(fault);
  return stop();
}

}  // namespace lockstep
