#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "agent/comm/socket.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::rpc {

// Waits for any of many descriptors, level-triggered. Each has a tag, which its events carry.
// wait() is for one thread, the rest for any.
class Poller {
 public:
  static Result<Poller> create();

  Status add(int fd, uint64_t tag, bool wants_write = false);
  void change(int fd, uint64_t tag, bool wants_write);
  void remove(int fd);

  struct Event {
    uint64_t tag = 0;
    bool readable = false;  // also if the connection has ended
    bool writable = false;
  };
  // Waits for events, wake(), or the end of the time. The events are valid until the next call.
  std::span<const Event> wait(Duration timeout);
  // Ends the current wait(), or the next one.
  void wake();

 private:
  Poller(comm::UniqueFd epoll, comm::UniqueFd event)
      : epoll_(std::move(epoll)), event_(std::move(event)) {}
  comm::UniqueFd epoll_;
  comm::UniqueFd event_;
  std::array<epoll_event, 64> raw_{};
  std::array<Event, 64> events_{};
};

}  // namespace lockstep::rpc
