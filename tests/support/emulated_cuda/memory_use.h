#pragma once

#include <cstddef>
#include <cstdint>

// What this process has of the emulated device's memory and of page-locked memory, and what was
// copied between the device and the host. Thread-safe.
namespace lockstep::emulated_cuda {

struct MemoryUse {
  uint64_t device_bytes = 0;  // that are allocated now
  uint64_t pinned_bytes = 0;
  uint64_t device_bytes_max = 0;  // at a time, since the last reset
  uint64_t pinned_bytes_max = 0;
  uint64_t to_host_bytes = 0;  // copied since then
  uint64_t to_device_bytes = 0;
};
MemoryUse memory_use();
// Begins the counting anew, from what is allocated now.
void reset_memory_use();

// For cuda_api.cc.
enum class MemoryKind : uint8_t { kDevice, kPinned };
void note_allocation(const void* data, size_t bytes, MemoryKind kind);
void note_release(const void* data);  // null: nothing
void note_copy(const void* to, const void* from, size_t bytes);

}  // namespace lockstep::emulated_cuda
