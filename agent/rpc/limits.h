#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "common/base/clock.h"

namespace lockstep::rpc {

// The largest head of a request or a reply, in bytes.
constexpr size_t kHeadMax = 1024;
// The largest text of an error.
constexpr size_t kErrorTextMax = 1024;
// A body of at most this many bytes is copied by Request::answer().
constexpr size_t kCopiedBodyMax = 4096;
// The largest reply, head and body, of a method that executes at most once (server.h).
constexpr size_t kRememberedReplyMax = kHeadMax + kCopiedBodyMax;
// A client begins no call while the call this many numbers before it is unfinished (call_memory.h).
constexpr uint64_t kUnfinishedMax = 4096;
// A burst (client.h, server.h) keeps fewer bytes than this for a connection.
constexpr uint64_t kBurstBytes = uint64_t{64} << 10;
// A burst of replies sends all that it keeps with the first reply that comes this long after the
// oldest one.
constexpr Duration kBurstTime = std::chrono::microseconds(200);
// The most segments of shared memory that a process offers to a peer (shared_memory.h).
constexpr size_t kSegmentsMax = 8;

// Bounds of what one side keeps for the other. Nothing that a peer sends makes this side keep more.
// Tests lower them.
struct Limits {
  // Requests of one client that a server works on at a time, and the bytes of their heads and
  // bodies. A larger request goes alone. A server tells its clients, which keep the rest in their
  // queues. It stops reading from a connection that exceeds them all the same.
  uint32_t calls_max = 1024;
  uint64_t window_bytes = uint64_t{64} << 20;
  // Largest request, with its head. Memory for it is only touched as its bytes arrive.
  uint64_t message_bytes_max = uint64_t{1} << 30;
  // Calls to one server that wait in the client.
  size_t queued_calls_max = 4096;
  // Payload of a frame: a small message waits for at most one frame of a large one that goes the
  // same way.
  uint32_t frame_bytes_max = uint32_t{1} << 20;
  // A body of at least this many bytes that lies in shared memory is not sent; the other side
  // copies it from there.
  size_t lent_bytes_min = size_t{64} << 10;

  size_t clients_max = 4096;                      // sessions of one server
  size_t clients_per_rank_max = 16;               // of one rank
  size_t objects_max = 1024;                      // of one session
  size_t remembered_bytes_max = size_t{4} << 20;  // replies of one client (call_memory.h)

  Duration ping_every = std::chrono::seconds(1);
  Duration silence_limit = std::chrono::seconds(10);   // then the other side counts as gone
  Duration reconnect_limit = std::chrono::seconds(5);  // then a client's calls to it fail
  Duration lease = std::chrono::seconds(30);           // of a session without a connection
  Duration handshake_limit = std::chrono::seconds(2);  // of one connection
};

}  // namespace lockstep::rpc
