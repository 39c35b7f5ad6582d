#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep {

// What memory is for; the order is that of the arena.
enum class ArenaUse : uint8_t { kParameters, kGradients, kOptimizer, kActivations, kWorkspace };
constexpr int kArenaUses = 5;
// "parameters"
const char* name_of(ArenaUse use);

struct ArenaWish {
  ArenaUse use = ArenaUse::kWorkspace;
  std::string name;  // to whom: "block 3 attention"
  uint64_t bytes = 0;
};

struct ArenaPart {
  ArenaUse use = ArenaUse::kWorkspace;
  std::string name;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // a multiple of kArenaAlign; meaningless where there are no bytes
};

// Who gets which bytes of one allocation: parts of one use lie together, in the order of the
// wishes.
struct ArenaPlan {
  std::vector<ArenaPart> parts;  // as the wishes were given
  uint64_t bytes = 0;            // of the whole, with what alignment takes
  // Of the device, that stay free beside it: what libraries take by themselves, later.
  uint64_t reserve = 0;
};

constexpr uint64_t kArenaAlign = 256;  // what CUDA's own allocations have
constexpr uint64_t kArenaBytesMax = uint64_t{1} << 50;

// Pure. kInvalid for wishes of more than kArenaBytesMax together.
Result<ArenaPlan> plan_arena(const std::vector<ArenaWish>& wishes);

// Of all parts of that use, without what alignment takes.
uint64_t bytes_of(const ArenaPlan& plan, ArenaUse use);

// For people, exact: a line for each use and each part with its bytes, then what alignment takes
// and the whole.
//   parameters                   1000 bytes
//     wte                          600 bytes at 0
//     wpe                          400 bytes at 768
//   alignment                      168 bytes
//   together                      1168 bytes (1.14 KiB)
//   kept free                     4096 bytes (where there is a reserve)
std::string arena_text(const ArenaPlan& plan);

// Whether a plan and its reserve are there now, of a plan that has one; kUnavailable as
// out_of_memory() says it where they are not.
Status expect_room(Device device, const ArenaPlan& plan);

// The memory of a plan, in one allocation, zeroed. Move-only, owner.
class Arena {
 public:
  // kUnavailable where the memory is not there, the reserve's included: says what was asked for and
  // by whom (the uses and their bytes), and what would fit.
  static Result<Arena> allocate(Device device, ArenaPlan plan);

  const ArenaPlan& plan() const { return plan_; }
  // The memory of plan().parts[part]; null where it has no bytes.
  void* at(size_t part) const;
  Workspace workspace(size_t part) const { return {at(part), plan_.parts[part].bytes}; }

 private:
  Arena(ArenaPlan plan, Buffer buffer) : plan_(std::move(plan)), buffer_(std::move(buffer)) {}

  ArenaPlan plan_;
  Buffer buffer_;
};

}  // namespace lockstep
