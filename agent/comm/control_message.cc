#include "agent/comm/control_message.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace lockstep::comm {
namespace {

using Type = ControlMessage::Type;

struct Head {
  static constexpr uint32_t kMagic = 0x3443434c;  // "LCC4"
  uint32_t magic = kMagic;
  Type type = Type::kHeartbeat;
  int32_t suspect = -1;
  Code code = Code::kUnavailable;
  uint64_t entered = 0;
  AwaitedRanks waits_for;
};
static_assert(sizeof(Head) == ControlBytes::kHead);

bool is_ours(const Head& head, int world_size) {
  return head.magic == Head::kMagic && head.type >= Type::kHeartbeat && head.type <= Type::kBye &&
         head.code >= Code::kInvalid && head.code <= Code::kInternal && head.suspect >= -1 &&
         head.suspect < world_size;
}

}  // namespace

ControlBytes::ControlBytes(const ControlMessage& message) {
  const Head head{.type = message.type,
                  .suspect = message.fault.suspect,
                  .code = message.fault.code,
                  .entered = message.entered,
                  .waits_for = message.waits_for};
  std::memcpy(bytes_.data(), &head, sizeof head);
  if (message.type != Type::kAbort) return;
  const std::string& reason = message.fault.reason;
  std::memcpy(bytes_.data() + kHead, reason.data(), std::min(reason.size(), kFaultReasonMax));
  size_ = kMost;
}

Result<std::optional<ControlMessage>> ControlReader::received(size_t bytes) {
  CHECK(bytes <= wanted_ - held_);
  held_ += bytes;
  if (held_ < wanted_) return std::optional<ControlMessage>();
  Head head;
  std::memcpy(&head, bytes_.data(), sizeof head);
  const bool ours = is_ours(head, world_size_);
  if (ours && head.type == Type::kAbort && wanted_ == ControlBytes::kHead) {
    wanted_ = ControlBytes::kMost;
    return std::optional<ControlMessage>();
  }
  held_ = 0;
  wanted_ = ControlBytes::kHead;
  if (!ours) return corrupt("sent an unknown control message");
  ControlMessage message{.type = head.type,
                         .entered = head.entered,
                         .waits_for = head.waits_for,
                         .fault = {.code = head.code, .reason = "", .suspect = head.suspect}};
  if (head.type == Type::kAbort) {
    bytes_.back() = std::byte{0};
    message.fault.reason = reinterpret_cast<const char*>(bytes_.data() + ControlBytes::kHead);
  }
  return std::optional(std::move(message));
}

}  // namespace lockstep::comm
