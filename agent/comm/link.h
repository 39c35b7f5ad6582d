#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include "common/base/result.h"

namespace lockstep::comm {

class Loans;
using Bytes = std::span<const std::byte>;

// An ordered, reliable stream of bytes in both directions between this rank and one other. Calls
// never block; the caller retries what could not move after waiting (waiter.h). One thread at a
// time; on a connection (fd() is not -1), one thread may write() while another one uses the rest.
// kUnavailable: the other side is gone, and the link with it. kCorrupt: the memory that both
// share is damaged.
class Link {
 public:
  explicit Link(int peer) : peer_(peer) {}
  virtual ~Link() = default;

  // The world rank at the other end.
  int peer() const { return peer_; }

  // Takes as many bytes of the parts, in order, as there is room for; returns how many.
  virtual Result<size_t> write(std::initializer_list<Bytes> parts) = 0;

  // Returns received bytes in place: none if there are fewer than `at_least`, never more than
  // `at_most`. They stay until consumed; the span is valid until the next call. If `at_least`
  // divides 64 and only multiples of it are consumed, the span is aligned to it (frame.h).
  struct Want {
    size_t at_least = 1;
    size_t at_most = 1;
  };
  virtual Result<Bytes> peek(Want want) = 0;
  virtual void consume(size_t bytes) = 0;

  // Copies received bytes to `into` and consumes them; returns how many.
  virtual Result<size_t> read(std::span<std::byte> into) = 0;

  // Returns transfers that bypass the link's own copies; null if the two sides are on different
  // hosts.
  virtual Loans* loans() { return nullptr; }

  // A descriptor to poll; -1 if the other side rings this rank's bell in shared memory.
  virtual int fd() const { return -1; }
  // Describes the path for people: "shared memory", "tcp 10.0.1.4 to 10.0.2.7 (eth0)".
  virtual std::string describe() const = 0;
  // Call before polling for input: at least this many more bytes are certain to come, so the kernel
  // need not wake us for only a small part of them.
  virtual void expect(size_t /*bytes*/) {}

 private:
  int peer_;
};

}  // namespace lockstep::comm
