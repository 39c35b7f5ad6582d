#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "agent/comm/socket.h"

namespace lockstep::bench {

// A process that reads what comes over a plain loopback connection into memory, or writes memory to
// it: what no transport over TCP exceeds. Its sockets are tuned as ours. Make it before this
// process has threads.
class PlainSocket {
 public:
  explicit PlainSocket(size_t bytes_max);
  ~PlainSocket();
  PlainSocket(const PlainSocket&) = delete;
  PlainSocket& operator=(const PlainSocket&) = delete;

  // Sends the bytes and waits for one byte that says that they are in the other process's memory.
  // Returns the seconds.
  double push(std::span<const std::byte> bytes);
  // Asks for that many bytes, and reads them.
  double pull(std::span<std::byte> into);
  pid_t pid() const { return pid_; }

 private:
  comm::UniqueFd fd_;
  pid_t pid_ = -1;
};

// Copies once; returns the seconds.
double copy_once(std::span<std::byte> into, std::span<const std::byte> from);

}  // namespace lockstep::bench
