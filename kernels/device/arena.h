#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::kernels {

// The purpose of a piece of memory. The arena lays the uses out in this order.
enum class ArenaUse : uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kGathered,  // what ranks divide among them, while it is whole
  kActivations,
  kWorkspace,
};
constexpr int kArenaUses = 6;
// Returns for example "parameters".
const char* name_of(ArenaUse use);

struct ArenaRequest {
  ArenaUse use = ArenaUse::kWorkspace;
  std::string name;  // the owner: "block 3 attention"
  uint64_t bytes = 0;
};

struct ArenaPart {
  ArenaUse use = ArenaUse::kWorkspace;
  std::string name;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // a multiple of kArenaAlign; unspecified if bytes is 0
};

// The layout of one allocation. Parts with the same use are contiguous, in the order of the
// requests.
struct ArenaPlan {
  std::vector<ArenaPart> parts;  // in the order of the requests
  uint64_t bytes = 0;            // of the whole allocation, with alignment padding
  // Bytes that must stay free on the device, for libraries that allocate later.
  uint64_t reserve = 0;
};

constexpr uint64_t kArenaAlign = 256;  // as cudaMalloc aligns its allocations
constexpr uint64_t kArenaBytesMax = uint64_t{1} << 50;

// Pure. kInvalid if the requests exceed kArenaBytesMax in total.
Result<ArenaPlan> plan_arena(const std::vector<ArenaRequest>& requests);

// Returns the sum of all parts with that use, without alignment padding.
uint64_t bytes_of(const ArenaPlan& plan, ArenaUse use);

// Checks that the device now has enough free memory for the plan and its reserve. kUnavailable,
// with the text of out_of_memory(), if it does not. Always succeeds for a plan without a reserve.
Status check_free_memory(Device device, const ArenaPlan& plan);

// The memory of a plan: one allocation. Move-only, owner. Synchronize the streams that use an arena
// before freeing it.
class Arena {
 public:
  // Zeroed memory of the device. kUnavailable if the plan and its reserve do not fit. The error
  // names the requested size, the uses with their bytes, and what would fit.
  static Result<Arena> allocate(Device device, ArenaPlan plan);
  // Page-locked memory of the host, uninitialized (PinnedBuffer). Same errors.
  static Result<Arena> allocate_pinned(Device device, ArenaPlan plan);

  const ArenaPlan& plan() const { return plan_; }
  // Returns the memory of plan().parts[part]; null if the part has 0 bytes.
  void* at(size_t part) const;
  Workspace workspace(size_t part) const { return {at(part), plan_.parts[part].bytes}; }

 private:
  Arena(ArenaPlan plan, Buffer buffer, PinnedBuffer pinned)
      : plan_(std::move(plan)), buffer_(std::move(buffer)), pinned_(std::move(pinned)) {}

  ArenaPlan plan_;
  Buffer buffer_;  // this or `pinned_`
  PinnedBuffer pinned_;
};

}  // namespace lockstep::kernels
