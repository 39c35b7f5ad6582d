#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "agent/comm/comm_limits.h"
#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep::comm {

// Precedes every payload between two ranks, on every transport. A frame is this header, the
// payload, and zeros up to a multiple of 64 bytes, so that elements stay aligned in any aligned
// buffer. The data that one rank sends to another in one step of an operation travels in one or
// more frames. Host byte order: a host of the other order fails the check of `magic`.
//
// A credit is a frame without payload, sent from the receiver to the sender. It belongs to an
// operation in which more than a window (comm_limits.h) goes from one rank to another. `step` is
// kCreditStep, and `total` is how many of all these bytes may be sent by now.
//
// A loan (loans.h) is a frame whose payload is not in the link: the receiver reads `bytes` bytes
// from the sender's memory.
struct FrameHeader {
  static constexpr uint32_t kMagic = 0x334d434c;      // "LCM3"
  static constexpr uint32_t kLoanMagic = 0x334c434c;  // "LCL3"

  uint32_t magic = kMagic;
  Collective kind = Collective::kBarrier;  // never kReceive: a receive takes frames of a kSend
  DataType type = DataType::kU8;
  ReduceOp op = ReduceOp::kSum;
  Algorithm algorithm = Algorithm::kDirect;  // never kAuto
  uint64_t round = 0;
  uint64_t group = 0;  // 0: the world; else a hash of the sub-group's ranks
  // Number of the collective in its group; for a kSend, of the send from that rank to this one in
  // the group.
  uint64_t sequence = 0;
  uint64_t count = 0;  // elements, as in the call; for a part: of the whole (CallPart)
  uint32_t root = 0;
  uint32_t part = 0;   // CallPart::index
  uint32_t step = 0;   // counts the moves from this rank to that one within the operation
  uint32_t bytes = 0;  // payload of this frame
  uint64_t total = 0;  // of all frames of this step

  bool operator==(const FrameHeader&) const = default;
};
constexpr size_t kFrameAlign = 64;
static_assert(sizeof(FrameHeader) == kFrameAlign);

constexpr uint32_t kCreditStep = 0xffffffff;

constexpr size_t padding_of(size_t payload) {
  return (kFrameAlign - payload % kFrameAlign) % kFrameAlign;
}

// Returns "all_reduce #17", followed by " of a sub-group" if it is one.
std::string operation_name(const FrameHeader& header);
// Returns "all_reduce #17 (40 x f32 SUM, ring)", with ", part 2" for parts after the first.
std::string describe(const FrameHeader& header);

inline bool is_loan(const FrameHeader& header) {
  return header.magic == FrameHeader::kLoanMagic;
}
// Returns the bytes after the header in the link.
constexpr size_t payload_in_link(const FrameHeader& header) {
  return header.magic == FrameHeader::kLoanMagic ? 0 : header.bytes;
}

// kCorrupt if what `sender` sent is no frame, is too long, or lends data that is to be reduced.
Status check_frame(const FrameHeader& got, const CommLimits& limits, int sender);
// kCorrupt if the frame is of another round.
Status check_round(const FrameHeader& got, uint64_t round, int sender);

// Decides whether a frame of `sender` belongs to the expected operation, or to one that runs
// concurrently (of another group, or another send). kConflict if the sender is in another operation
// than this rank: "in barrier #2 (...), rank 3 in ...", which the caller appends to this rank's own
// name. Also fails as check_round() does.
enum class FrameMatch { kMatches, kOtherOperation };
Result<FrameMatch> match_frame(const FrameHeader& expected, const FrameHeader& got, int sender);

}  // namespace lockstep::comm
