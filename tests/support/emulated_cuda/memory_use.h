#pragma once

#include <cstddef>
#include <cstdint>

// Tracks this process's emulated device memory and pinned memory, and the bytes copied between
// device and host. Thread-safe.
namespace lockstep::emulated_cuda {

struct MemoryUse {
  uint64_t device_bytes = 0;  // currently allocated
  uint64_t pinned_bytes = 0;
  uint64_t device_bytes_max = 0;  // maximum since the last reset
  uint64_t pinned_bytes_max = 0;
  uint64_t to_host_bytes = 0;  // copied since the last reset
  uint64_t to_device_bytes = 0;
};
MemoryUse memory_use();
// Restarts the counters; the maxima start at what is allocated now.
void reset_memory_use();

// Called by cuda_api.cc.
enum class MemoryKind : uint8_t { kDevice, kPinned };
void note_allocation(const void* data, size_t bytes, MemoryKind kind);
void note_release(const void* data);  // null: no-op
void note_copy(const void* to, const void* from, size_t bytes);

}  // namespace lockstep::emulated_cuda
