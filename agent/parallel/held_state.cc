#include "agent/parallel/held_state.h"

namespace lockstep::parallel {

std::vector<ValueRun> HeldState::runs(size_t kind, int64_t begin, int64_t count) const {
  const KindMemory& memory = kinds[kind];
  if (!memory.is_arena) return {{memory.values + begin, count}};
  std::vector<ValueRun> runs;
  for (const ShardSlice& slice : slices_within(this->slices, begin, begin + count)) {
    runs.push_back({memory.values + slice.offset, slice.count});
  }
  return runs;
}

void HeldState::give_back(size_t kind) const {
  const FarMemory* far = kinds[kind].far;
  if (far != nullptr) far->give_back({0, far->count()});
}

}  // namespace lockstep::parallel
