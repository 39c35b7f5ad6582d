#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "agent/comm/comm_limits.h"
#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep {

// What precedes every payload between two ranks, on every transport. A frame is this header, the
// payload, and zeros up to a multiple of 64 bytes, so that elements stay aligned in any buffer
// that begins aligned. What one rank gives another at one step of an operation travels in one frame
// or several. Host byte order: a host of the other order fails the check of `magic`.
//
// A credit is a frame without payload that goes the other way, of an operation in which more than
// a window (comm_limits.h) goes from one rank to another: `step` is kCreditStep, and `total` how
// many of all these bytes may be sent by now.
//
// A loan (loans.h) is a frame whose payload is not in the link: `bytes` say how much the receiver
// has to read from the sender's memory.
struct FrameHeader {
  static constexpr uint32_t kMagic = 0x334d434c;      // "LCM3"
  static constexpr uint32_t kLoanMagic = 0x334c434c;  // "LCL3"

  uint32_t magic = kMagic;
  Collective kind = Collective::kBarrier;  // never kReceive: what it takes is a kSend's
  DataType type = DataType::kU8;
  ReduceOp op = ReduceOp::kSum;
  Algorithm algorithm = Algorithm::kDirect;  // never kAuto
  uint64_t round = 0;
  uint64_t group = 0;  // 0: all ranks; else a hash of the sub-group's ranks
  // The collective's number in its group; of a kSend: from rank to rank in it.
  uint64_t sequence = 0;
  uint64_t count = 0;  // elements, as in the call; of a part: of the whole (CallPart)
  uint32_t root = 0;
  uint32_t part = 0;   // CallPart::index
  uint32_t step = 0;   // counts what travels from this rank to that one within the operation
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

// "all_reduce #17", with " of a sub-group" where it is one.
std::string operation_name(const FrameHeader& header);
// "all_reduce #17 (40 x f32 SUM, ring)"; of a part of it, after the first one: ", part 2" behind.
std::string describe(const FrameHeader& header);

inline bool is_loan(const FrameHeader& header) {
  return header.magic == FrameHeader::kLoanMagic;
}
// Bytes behind the header in the link.
constexpr size_t payload_in_link(const FrameHeader& header) {
  return header.magic == FrameHeader::kLoanMagic ? 0 : header.bytes;
}

// kCorrupt if what `sender` sent is no frame, or a longer one, or lends what is to be reduced.
Status check_frame(const FrameHeader& got, const CommLimits& limits, int sender);
// kCorrupt if it is of another round.
Status check_round(const FrameHeader& got, uint64_t round, int sender);

// Whether a frame that `sender` sent belongs to the operation that is expected, or to one that runs
// beside it (of another group, or another send). kConflict if the sender is in another operation
// than we are: "in barrier #2 (...), rank 3 in ...", to be put behind this rank's own name;
// as check_round() says.
enum class Belonging { kOurs, kElsewhere };
Result<Belonging> belonging(const FrameHeader& expected, const FrameHeader& got, int sender);

}  // namespace lockstep
