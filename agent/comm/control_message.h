#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "agent/comm/fault.h"
#include "common/api/collective_board.h"
#include "common/base/result.h"

namespace lockstep {

// What ranks tell each other over their control connections (control.h): 56 bytes, and the reason
// behind those of an abort. Host byte order: a host of the other order fails the check of a magic.
struct ControlMessage {
  enum class Type : uint32_t { kHeartbeat = 1, kBell, kAbort, kBye };
  Type type = Type::kHeartbeat;
  uint64_t entered = 0;    // of a heartbeat: the last collective of the world
  AwaitedRanks waits_for;  // likewise: where its program stands still
  Fault fault;             // of an abort; a reason is no longer than kFaultReasonMax
};

// A message as it travels.
class ControlBytes {
 public:
  static constexpr size_t kHead = 56;
  static constexpr size_t kMost = kHead + kFaultReasonMax + 1;
  explicit ControlBytes(const ControlMessage& message);
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }

 private:
  std::array<std::byte, kMost> bytes_{};
  size_t size_ = kHead;
};

// Takes messages out of a stream, however it comes.
class ControlReader {
 public:
  // Suspects are ranks of a world of this size, or nobody (-1).
  explicit ControlReader(int world_size) : world_size_(world_size) {}
  // Where the next bytes of the stream go; never empty, and never more than belong to one message.
  std::span<std::byte> room() { return std::span(bytes_).first(wanted_).subspan(held_); }
  // So many have come there. The message, if this was all of it; kCorrupt if it is none of ours.
  Result<std::optional<ControlMessage>> came(size_t bytes);

 private:
  int world_size_;
  std::array<std::byte, ControlBytes::kMost> bytes_{};
  size_t wanted_ = ControlBytes::kHead;
  size_t held_ = 0;
};

}  // namespace lockstep
