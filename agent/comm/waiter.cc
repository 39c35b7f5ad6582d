#include "agent/comm/waiter.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::comm {
namespace {

// A wake-up costs several microseconds. Spinning for longer than a few of those wastes a core that
// the model could compute on.
constexpr Duration kSpinMin = std::chrono::microseconds(1);
constexpr Duration kSpinMax = std::chrono::microseconds(50);
// Looks at the clock once per this many pauses.
constexpr int kPausesPerLook = 32;
// Once per this many sleeps, tries again whether spinning pays off.
constexpr int kSleepsPerTrial = 16;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

TimePoint now() {
  return SystemClock().now();
}

bool all_in_memory(const std::vector<WaitReason>& reasons) {
  return std::all_of(reasons.begin(), reasons.end(),
                     [](const WaitReason& reason) { return reason.link->fd() < 0; });
}

}  // namespace

bool shares_cores(int local_ranks, int cores) {
  const long machine = ::sysconf(_SC_NPROCESSORS_ONLN);
  return local_ranks > (cores > 0 ? std::min<long>(cores, machine) : machine);
}

Result<std::unique_ptr<Waiter>> Waiter::create(Options options) {
  TRY_ASSIGN(UniqueFd event, make_event_fd());
  const bool shares = shares_cores(options.local_ranks, options.cores);
  return std::unique_ptr<Waiter>(new Waiter(std::move(options), shares, std::move(event)));
}

bool Waiter::spin() {
  if (shares_cores_) return false;
  if (state_ == State::kRunning) {
    state_ = State::kSpinning;
    began_ = now();
  }
  for (int i = 0; i < kPausesPerLook; ++i) pause_core();
  return now() - began_ < spin_budget_;
}

void Waiter::pause(const std::vector<WaitReason>& reasons, Duration timeout) {
  const bool in_memory = region_ != nullptr && all_in_memory(reasons);
  const Sleep how = in_memory ? Sleep::kFutex : Sleep::kPoll;
  if (state_ != State::kAboutToSleep || sleep_kind_ != how) {
    if (state_ != State::kAboutToSleep && spin()) return;
    state_ = State::kAboutToSleep;
    sleep_kind_ = how;
    if (region_ != nullptr) {
      bell_seen_ = region_->announce_sleep(local_rank_, how);
      return;  // the caller checks once more: earlier changes rang no bell
    }
  }
  if (in_memory) {
    region_->sleep(local_rank_, bell_seen_, timeout);
  } else {
    sleep_in_poll(reasons, timeout);
  }
  if (region_ != nullptr) region_->cancel_sleep(local_rank_);
  state_ = State::kSlept;
}

void Waiter::moved() {
  if (state_ == State::kRunning) return;
  if (state_ == State::kAboutToSleep && region_ != nullptr) region_->cancel_sleep(local_rank_);
  const bool paid = state_ == State::kSpinning;
  state_ = State::kRunning;
  if (paid) {
    spin_budget_ = std::min(kSpinMax, spin_budget_ * 2);
  } else if (++sleeps_ % kSleepsPerTrial == 0) {
    spin_budget_ = kSpinMax;
  } else {
    spin_budget_ = sleeps_ % kSleepsPerTrial == 1 ? kSpinMin : std::max(kSpinMin, spin_budget_ / 2);
  }
}

void Waiter::sleep_in_poll(const std::vector<WaitReason>& reasons, Duration timeout) {
  std::vector<pollfd> polled{{.fd = event_.get(), .events = POLLIN, .revents = 0}};
  for (const WaitReason& reason : reasons) {
    if (reason.link->fd() < 0) continue;
    if (reason.input) reason.link->expect(reason.missing);
    const auto events = static_cast<short>(reason.input ? POLLIN : POLLOUT);
    polled.push_back({.fd = reason.link->fd(), .events = events, .revents = 0});
  }
  const auto bounded = std::clamp<Duration>(timeout, Duration::zero(), std::chrono::hours(1));
  timespec relative{};
  relative.tv_sec = bounded.count() / 1'000'000'000;
  relative.tv_nsec = bounded.count() % 1'000'000'000;
  ::ppoll(polled.data(), polled.size(), &relative, nullptr);
  if ((polled[0].revents & POLLIN) != 0) drain_event(event_.get());
}

// The event comes last. A driver that it wakes may announce its next sleep at once; if this then
// took that announcement back, no neighbour would ring.
void Waiter::wake() {
  if (region_ != nullptr) static_cast<void>(region_->wake(local_rank_));
  signal_event(event_.get());
}

}  // namespace lockstep::comm
