#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep {

// Owner of a descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

struct SocketAddress {
  std::string host;  // numeric, v4 or v6
  int port = 0;
};
std::string to_string(const SocketAddress& address);

// All sockets are close-on-exec and never block.
Result<UniqueFd> listen_socket(const SocketAddress& address);
// Of a listening socket that was made elsewhere: close-on-exec, non-blocking; kInvalid if it is
// none.
Status adopt_listener(int fd);
// A connection that has begun; it is writable when it is made or has failed.
Result<UniqueFd> begin_connect(const SocketAddress& address);
// The outcome of begin_connect(), once writable.
Status connect_outcome(int fd);
// A connection that is waiting to be taken, or an empty one if there is none now. kUnavailable
// where this process has no descriptor left for it.
struct Accepted {
  UniqueFd fd;
  std::string from;
};
Result<Accepted> accept_one(int listener);
// Says on these connections that nothing more will be said, and waits until the other sides have
// all that was, for at most `limit`. What comes meanwhile is thrown away: closing a socket on top
// of something unread makes the kernel drop what it has not sent yet.
void finish_sending(std::vector<int> fds, Duration limit);
// No delay, as collectives wait for every frame.
void tune_stream(int fd);
// Of a connection that is made: where it does not leave the machine (loopback, or an address that
// is both ends'), there is no network to share with others, and the congestion control that the
// machine has for that (BBR paces what is sent, and takes 1.3 to 2.8 times as long) gives way to
// Reno, which every kernel allows. Best effort.
void tune_local_stream(int fd);
Result<UniqueFd> make_event_fd();
void signal_event(int fd);
void drain_event(int fd);

}  // namespace lockstep
