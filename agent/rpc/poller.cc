#include "agent/rpc/poller.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace lockstep::rpc {
namespace {

constexpr uint64_t kWakeTag = ~uint64_t{0};

epoll_event wanted(uint64_t tag, bool wants_write) {
  epoll_event event{};
  event.events = EPOLLIN | (wants_write ? uint32_t{EPOLLOUT} : 0);
  event.data.u64 = tag;
  return event;
}

}  // namespace

Result<Poller> Poller::create() {
  comm::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return errno_error("[rpc] creating an epoll descriptor", errno);
  TRY_ASSIGN(comm::UniqueFd event, comm::make_event_fd());
  Poller poller(std::move(epoll), std::move(event));
  TRY(poller.add(poller.event_.get(), kWakeTag));
  return poller;
}

Status Poller::add(int fd, uint64_t tag, bool wants_write) {
  epoll_event event = wanted(tag, wants_write);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return errno_error("[rpc] watching a connection", errno);
}

void Poller::change(int fd, uint64_t tag, bool wants_write) {
  epoll_event event = wanted(tag, wants_write);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Poller::remove(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::span<const Poller::Event> Poller::wait(Duration timeout) {
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(
      std::clamp<Duration>(timeout, Duration::zero(), std::chrono::minutes(1)));
  const int got = ::epoll_wait(epoll_.get(), raw_.data(), static_cast<int>(raw_.size()),
                               static_cast<int>(rest.count()));
  size_t count = 0;
  for (int i = 0; i < got; ++i) {
    const epoll_event& raw = raw_[static_cast<size_t>(i)];
    if (raw.data.u64 == kWakeTag) {
      comm::drain_event(event_.get());
      continue;
    }
    events_[count++] = {.tag = raw.data.u64,
                        .readable = (raw.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0,
                        .writable = (raw.events & EPOLLOUT) != 0};
  }
  return std::span(events_).first(count);
}

void Poller::wake() {
  comm::signal_event(event_.get());
}

}  // namespace lockstep::rpc
