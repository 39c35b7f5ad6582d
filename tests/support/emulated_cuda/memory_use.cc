#include "tests/support/emulated_cuda/memory_use.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace lockstep::emulated_cuda {
namespace {

struct Block {
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
};

struct Books {
  std::mutex mutex;
  std::map<const void*, Block> blocks;  // by address
  MemoryUse use;

  uint64_t& bytes_of(MemoryKind kind) {
    return kind == MemoryKind::kDevice ? use.device_bytes : use.pinned_bytes;
  }
  bool is_on_device(const void* at) const {
    auto after = blocks.upper_bound(at);
    if (after == blocks.begin()) return false;
    const auto& [begin, block] = *--after;
    return block.kind == MemoryKind::kDevice &&
           at < static_cast<const std::byte*>(begin) + block.bytes;
  }
  void note_peaks() {
    use.device_bytes_max = std::max(use.device_bytes_max, use.device_bytes);
    use.pinned_bytes_max = std::max(use.pinned_bytes_max, use.pinned_bytes);
  }
};

Books& books() {
  static Books all;
  return all;
}

}  // namespace

MemoryUse memory_use() {
  const std::scoped_lock lock(books().mutex);
  return books().use;
}

void reset_memory_use() {
  const std::scoped_lock lock(books().mutex);
  books().use = {.device_bytes = books().use.device_bytes,
                 .pinned_bytes = books().use.pinned_bytes};
  books().note_peaks();
}

void note_allocation(const void* data, size_t bytes, MemoryKind kind) {
  const std::scoped_lock lock(books().mutex);
  books().blocks[data] = {bytes, kind};
  books().bytes_of(kind) += bytes;
  books().note_peaks();
}

void note_release(const void* data) {
  const std::scoped_lock lock(books().mutex);
  const auto found = books().blocks.find(data);
  if (found == books().blocks.end()) return;
  books().bytes_of(found->second.kind) -= found->second.bytes;
  books().blocks.erase(found);
}

void note_copy(const void* to, const void* from, size_t bytes) {
  const std::scoped_lock lock(books().mutex);
  const bool to_device = books().is_on_device(to);
  const bool from_device = books().is_on_device(from);
  if (from_device && !to_device) books().use.to_host_bytes += bytes;
  if (to_device && !from_device) books().use.to_device_bytes += bytes;
}

}  // namespace lockstep::emulated_cuda
