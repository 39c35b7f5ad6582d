#include "kernels/device/arena.h"

#include <utility>

#include "kernels/device/device_errors.h"

namespace lockstep::kernels {
namespace {

uint64_t aligned(uint64_t offset) {
  return (offset + kArenaAlign - 1) / kArenaAlign * kArenaAlign;
}

// Returns for example "parameters 1.00 GiB, gradients 1.00 GiB".
std::string uses_text(const ArenaPlan& plan) {
  std::string text;
  for (int i = 0; i < kArenaUses; ++i) {
    const auto use = static_cast<ArenaUse>(i);
    const uint64_t bytes = bytes_of(plan, use);
    if (bytes == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(name_of(use)) + " " + bytes_text(bytes);
  }
  return text;
}

std::string request_text(const ArenaPlan& plan) {
  return "an arena of " + uses_text(plan);
}

}  // namespace

const char* name_of(ArenaUse use) {
  static constexpr const char* kNames[] = {"parameters", "gradients",   "optimizer",
                                           "gathered",   "activations", "workspace"};
  return kNames[static_cast<size_t>(use)];
}

uint64_t bytes_of(const ArenaPlan& plan, ArenaUse use) {
  uint64_t sum = 0;
  for (const ArenaPart& part : plan.parts) sum += part.use == use ? part.bytes : 0;
  return sum;
}

Result<ArenaPlan> plan_arena(const std::vector<ArenaRequest>& requests) {
  ArenaPlan plan;
  for (const ArenaRequest& request : requests) {
    plan.parts.push_back({.use = request.use, .name = request.name, .bytes = request.bytes});
  }
  for (int i = 0; i < kArenaUses; ++i) {
    for (ArenaPart& part : plan.parts) {
      if (part.use != static_cast<ArenaUse>(i)) continue;
      part.offset = aligned(plan.bytes);
      if (part.bytes > kArenaBytesMax || part.offset > kArenaBytesMax - part.bytes) {
        return invalid("[arena] expected at most " + bytes_text(kArenaBytesMax) + ", got " +
                       bytes_text(part.bytes) + " for " + part.name + " at offset " +
                       bytes_text(part.offset));
      }
      plan.bytes = part.offset + part.bytes;
    }
  }
  return plan;
}

// Fails before the arena takes memory that libraries need later: their own out-of-memory errors
// would not name the cause.
Status check_free_memory(Device device, const ArenaPlan& plan) {
  if (plan.reserve == 0) return {};
  TRY_ASSIGN(const DeviceMemory memory, memory_of(device));
  if (plan.bytes <= memory.free_bytes && plan.reserve <= memory.free_bytes - plan.bytes) return {};
  return out_of_memory(
      {.device = device,
       .bytes = plan.bytes + plan.reserve,
       .by = request_text(plan) + ", and " + bytes_text(plan.reserve) + " for libraries",
       .free_bytes = memory.free_bytes,
       .total_bytes = memory.total_bytes});
}

Result<Arena> Arena::allocate(Device device, ArenaPlan plan) {
  TRY(check_free_memory(device, plan));
  TRY_ASSIGN(Buffer buffer, Buffer::allocate(device, plan.bytes, request_text(plan)));
  return Arena(std::move(plan), std::move(buffer), {});
}

Result<Arena> Arena::allocate_pinned(Device device, ArenaPlan plan) {
  TRY_ASSIGN(PinnedBuffer pinned,
             PinnedBuffer::allocate(device, plan.bytes, "page-locked: " + request_text(plan)));
  return Arena(std::move(plan), {}, std::move(pinned));
}

void* Arena::at(size_t part) const {
  const ArenaPart& of = plan_.parts[part];
  if (of.bytes == 0) return nullptr;
  void* begin = buffer_.data() != nullptr ? buffer_.data() : pinned_.data();
  return static_cast<std::byte*>(begin) + of.offset;
}

}  // namespace lockstep::kernels
