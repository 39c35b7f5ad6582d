#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "agent/rpc/limits.h"
#include "common/base/result.h"

namespace lockstep::rpc {

using Bytes = std::span<const std::byte>;

// The frames of a connection between a client and a server (docs/formats.md, "Remote calls"). A
// frame is a header, its payload, and zeros up to a multiple of 64 bytes, so that payloads are
// aligned in any aligned buffer. Host byte order: little-endian hosts only.
enum class FrameKind : uint8_t {
  kOpen = 1,      // client: the first frame, an Opening
  kOpened = 2,    // server: its answer, an Opening
  kMapped = 3,    // client: it has mapped the server's segments, as `object` says (a bit each)
  kRequest = 4,   // client: a message's first frame, with its head
  kReply = 5,     // server: likewise
  kMore = 6,      // another piece of the body of a message that has begun
  kAbort = 7,     // the message ends here; its sender has given it up
  kCancel = 8,    // client: no longer waits for the call
  kTaken = 9,     // client: no longer reads the lent body of the call's reply
  kRelease = 10,  // client: no longer uses the object
  kPing = 11,
  kBye = 12,  // client: ends the session
};

struct FrameHeader {
  static constexpr uint32_t kMagic = 0x3152434c;  // "LCR1"

  uint32_t magic = kMagic;
  FrameKind kind = FrameKind::kPing;
  uint8_t code = 0;         // reply: 0, or 1 + the Code of an error, whose text is the payload
  uint16_t head_bytes = 0;  // first frame of a message: the first bytes of its payload
  uint64_t call = 0;        // number of the call
  uint64_t method = 0;      // request: method_id()
  uint64_t object = 0;      // request: called, reply: returned, release: released; 0: none
  uint64_t total = 0;       // first frame of a message: bytes of its head and body
  uint64_t floor = 0;       // request: all calls with lower numbers are finished
  uint64_t timeout_us = 0;  // request: from now on; 0: no limit
  uint32_t bytes = 0;       // payload of this frame
  uint32_t pieces = 0;  // lent: a LentMark and this many LentPieces follow the head; 0: not lent

  bool operator==(const FrameHeader&) const = default;
};
constexpr size_t kFrameAlign = 64;
static_assert(sizeof(FrameHeader) == kFrameAlign);

// A body that is not in the stream: the receiver copies it from the sender's segments
// (shared_memory.h). It is valid if the sender's word still has the value after the copy.
struct LentMark {
  uint32_t segment = 0;
  uint32_t word = 0;
  uint64_t value = 0;
};
struct LentPiece {
  uint32_t segment = 0;
  uint32_t spare = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(LentMark) == 16 && sizeof(LentPiece) == 24);
constexpr size_t kLentPiecesMax = 64;

// A segment of shared memory that the sender offers.
struct SegmentNotice {
  uint64_t bytes = 0;
  std::array<uint8_t, 16> token{};  // the segment begins with it
  int32_t fd = -1;                  // in the sender's process
  uint32_t spare = 0;
};
static_assert(sizeof(SegmentNotice) == 32);

// Payload of the first frame of each side.
struct Opening {
  uint64_t client = 0;  // the client's number; the server repeats it
  // Client: 1 if it had a session here before. Server: 0 begun, 1 resumed, 2 it knows no such
  // session, 3 it has no room.
  uint32_t session = 0;
  uint32_t calls_max = 0;  // server: limits (limits.h)
  uint64_t window_bytes = 0;
  uint64_t message_bytes_max = 0;
  uint64_t mapped = 0;  // server: which of the client's segments it has mapped, a bit each
  uint64_t process = 0;
  uint32_t segment_count = 0;
  uint32_t spare = 0;
  std::array<SegmentNotice, kSegmentsMax> segments{};
};
static_assert(sizeof(Opening) == 56 + 32 * kSegmentsMax);
constexpr uint32_t kSessionBegun = 0;
constexpr uint32_t kSessionResumed = 1;
constexpr uint32_t kSessionUnknown = 2;
constexpr uint32_t kSessionsFull = 3;

enum class Side : uint8_t { kClient, kServer };

// kCorrupt, in words that follow a peer's name, if `sender` never sends such a frame.
Status check_frame(const FrameHeader& got, Side sender, const Limits& limits);
// kCorrupt likewise.
Status check_opening(const Opening& got, Side sender);

constexpr size_t padding_of(size_t payload) {
  return (kFrameAlign - payload % kFrameAlign) % kFrameAlign;
}
constexpr bool begins_message(FrameKind kind) {
  return kind == FrameKind::kRequest || kind == FrameKind::kReply;
}
// Returns the bytes of all parts together.
uint64_t bytes_in(std::span<const Bytes> parts);
// Returns how much of the payload is no part of a body: a head and marks, or an Opening.
size_t preface_of(const FrameHeader& header);

// The number of a method: the first 8 bytes of the SHA-256 of its name.
uint64_t method_id(std::string_view name);

}  // namespace lockstep::rpc
