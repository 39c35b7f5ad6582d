#pragma once

#include <cstddef>

namespace lockstep::emulated_cuda {

// Page-locked memory of the host, of unknown content. It serves every device of the
// process. Null where there is none. Thread-safe.
void* allocate_pinned(size_t bytes);
void release_pinned(void* data);
// How many bytes of such memory begin there, of one allocation; 0 for any other.
size_t pinned_bytes_from(const void* data);

}  // namespace lockstep::emulated_cuda
