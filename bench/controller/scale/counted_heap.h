#pragma once

#include <cstdint>

namespace lockstep::bench {

// Counts what is on the heap (operator new) by who allocated it, with malloc's own overhead.
// Programs that link this use these operators instead of the standard ones. For one thread.
enum class HeapOwner : uint8_t { kCluster, kController };

struct HeapUse {
  int64_t bytes = 0;       // now
  int64_t peak_bytes = 0;  // since the last reset_heap_peaks()
};

// Sets who allocates from now on; initially the cluster. Returns who did before.
HeapOwner set_heap_owner(HeapOwner owner);
HeapUse heap_use(HeapOwner owner);
void reset_heap_peaks();

}  // namespace lockstep::bench
