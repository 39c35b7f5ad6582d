#pragma once

#include <cstddef>

namespace lockstep::emulated_cuda {

// Returns pinned host memory, uninitialized, for every device of the process; null if there is
// none. Thread-safe.
void* allocate_pinned(size_t bytes);
void release_pinned(void* data);
// Treats memory from elsewhere as pinned. Returns false, and does nothing, if it is pinned.
bool pin(void* data, size_t bytes);
void unpin(void* data);
// Returns how many bytes of one pinned allocation start at `data`; 0 for other memory.
size_t pinned_bytes_from(const void* data);

}  // namespace lockstep::emulated_cuda
