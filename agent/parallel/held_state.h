#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "agent/parallel/host_transfer.h"
#include "agent/parallel/offload/far_memory.h"
#include "common/base/result.h"
#include "common/layout/shard_layout.h"

namespace lockstep::parallel {

// The memory of one kind of state on a rank's device: the parameters, or one of the optimizer's
// states.
struct KindMemory {
  float* values = nullptr;
  // The values have the layout of the arena, of which this rank's shard is a part. Otherwise they
  // are the shard alone.
  bool is_arena = false;
  const FarMemory* far = nullptr;  // that has the values; null: the device has them
};

// A rank's shard of the state, wherever it is kept. Places count from the beginning of the shard.
struct HeldState {
  std::vector<ShardSlice> slices;  // ShardLayout::slices() of this rank
  std::vector<KindMemory> kinds;   // place n has kind n; they outlive this
  HostTransfer& transfer;

  // Returns the memory of [begin, begin + count), in order.
  std::vector<ValueRun> runs(size_t kind, int64_t begin, int64_t count) const;
  // Gives back the pages of far memory that were used since: they need not stay in the process.
  void give_back(size_t kind) const;
};

}  // namespace lockstep::parallel
