#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep {

enum class CollectiveKind : uint8_t { kForm = 1, kBarrier, kBroadcast, kAllReduce, kAllGather };

// What precedes every payload between two ranks, on every transport. A frame is this header, the
// payload, and zeros up to a multiple of 64 bytes, so that elements stay aligned in any buffer
// that begins aligned. Host byte order: a host of the other order fails the check of `magic`.
struct FrameHeader {
  static constexpr uint32_t kMagic = 0x314d434c;  // "LCM1"

  uint32_t magic = kMagic;
  CollectiveKind kind = CollectiveKind::kBarrier;
  DataType type = DataType::kU8;
  ReduceOp op = ReduceOp::kSum;
  uint8_t reserved = 0;
  uint64_t round = 0;
  uint64_t group = 0;     // 0: all ranks; else a hash of the sub-group's ranks
  uint64_t sequence = 0;  // the collective's number in its group
  uint64_t count = 0;     // elements of the whole operation
  uint32_t root = 0;
  uint32_t step = 0;   // of the algorithm
  uint64_t bytes = 0;  // payload of this frame
  uint64_t spare = 0;

  bool operator==(const FrameHeader&) const = default;
};
constexpr size_t kFrameAlign = 64;
static_assert(sizeof(FrameHeader) == kFrameAlign);

// Bytes that a frame takes up on its way.
constexpr size_t frame_bytes(size_t payload) {
  return kFrameAlign + (payload + kFrameAlign - 1) / kFrameAlign * kFrameAlign;
}

// "all_reduce #17", with " of a sub-group" where it is one.
std::string collective_name(const FrameHeader& header);

// kConflict if the sender is in another operation than we are: "in barrier #2 (...), rank 3 in
// ...", to be put behind this rank's own name; kCorrupt if it is the same one and yet the frame is
// not the one that must come.
Status check_frame(const FrameHeader& expected, const FrameHeader& got, int sender);

}  // namespace lockstep
