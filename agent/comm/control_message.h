#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "agent/comm/fault.h"
#include "common/api/collective_board.h"
#include "common/base/result.h"

namespace lockstep::comm {

// A message between ranks on their control connections (control.h): 56 bytes, followed by the
// reason if it is an abort. Host byte order: a host of the other order fails the check of a magic.
struct ControlMessage {
  enum class Type : uint32_t { kHeartbeat = 1, kBell, kAbort, kBye };
  Type type = Type::kHeartbeat;
  uint64_t entered = 0;    // heartbeat: the last collective of the world that the rank entered
  AwaitedRanks waits_for;  // heartbeat: ranks that its program is blocked on
  Fault fault;             // abort: a reason of at most kFaultReasonMax bytes
};

// A message in wire format.
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

// Parses messages from a stream that arrives in pieces of any size.
class ControlReader {
 public:
  // Accepts suspects that are ranks of a world of this size, or nobody (-1).
  explicit ControlReader(int world_size) : world_size_(world_size) {}
  // Returns where the next bytes of the stream go; never empty, and never more than belong to one
  // message.
  std::span<std::byte> room() { return std::span(bytes_).first(wanted_).subspan(held_); }
  // Call after that many bytes were written to room(). Returns the message if it is complete;
  // kCorrupt if it is not one of ours.
  Result<std::optional<ControlMessage>> received(size_t bytes);

 private:
  int world_size_;
  std::array<std::byte, ControlBytes::kMost> bytes_{};
  size_t wanted_ = ControlBytes::kHead;
  size_t held_ = 0;
};

}  // namespace lockstep::comm
