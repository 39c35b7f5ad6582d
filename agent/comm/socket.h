#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::comm {

// Owns a file descriptor.
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

  bool operator==(const SocketAddress&) const = default;
};
std::string to_string(const SocketAddress& address);

// All sockets are close-on-exec and non-blocking.
Result<UniqueFd> listen_socket(const SocketAddress& address);
// Makes a listening socket from elsewhere close-on-exec and non-blocking. kInvalid if it is not
// one.
Status adopt_listener(int fd);
// Begins a connection. The socket becomes writable once it is connected or has failed.
Result<UniqueFd> begin_connect(const SocketAddress& address);
// Returns the outcome of begin_connect(), once writable.
Status connect_outcome(int fd);
// Accepts a connection that is waiting; returns an empty one if there is none. kUnavailable if this
// process has no descriptor left for it.
struct Accepted {
  UniqueFd fd;
  std::string from;
};
Result<Accepted> accept_one(int listener);
// Shuts down the sending side of these connections, and waits until the other sides have received
// everything, for at most `limit`. Discards input meanwhile: if a socket is closed with unread
// input, the kernel drops what it has not sent yet.
void finish_sending(std::vector<int> fds, Duration limit);
// Sends as many bytes of the parts (at most four), in order, as the connection has room for;
// returns how many. kUnavailable, in words that follow a rank's name, if it is gone.
Result<size_t> send_some(int fd, std::initializer_list<std::span<const std::byte>> parts);
// Returns how many bytes have come; 0 if there are none yet. kUnavailable likewise.
Result<size_t> receive_some(int fd, std::span<std::byte> into);
// Lets poll report input only once this many bytes, or as many as is sensible, are here. `current`
// is what was set before, 1 at first.
void set_low_water(int fd, size_t bytes, int& current);
// Disables Nagle's algorithm, as collectives wait for every frame.
void tune_stream(int fd);
// Tunes an established connection that stays on this machine (loopback, or both ends have the same
// address). It shares no network with others, so it does not need the machine's congestion control:
// BBR paces what is sent, and takes 1.3 to 2.8 times as long. Uses Reno instead, which every kernel
// allows. Best effort.
void tune_local_stream(int fd);
Result<UniqueFd> make_event_fd();
void signal_event(int fd);
void drain_event(int fd);

}  // namespace lockstep::comm
