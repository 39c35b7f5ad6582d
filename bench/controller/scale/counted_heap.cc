#include "bench/controller/scale/counted_heap.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace lockstep::bench {
namespace {

// Before each block; keeps the alignment.
struct alignas(std::max_align_t) Header {
  HeapOwner owner;
};
constexpr int64_t kMallocBytes = sizeof(size_t);  // that malloc adds to a block

HeapOwner owner_now = HeapOwner::kCluster;
std::array<HeapUse, 2> uses;

HeapUse& use_of(HeapOwner owner) {
  return uses[static_cast<size_t>(owner)];
}

int64_t bytes_of(Header* header) {
  const auto usable = static_cast<int64_t>(malloc_usable_size(header));
  return usable + kMallocBytes - static_cast<int64_t>(sizeof(Header));
}

}  // namespace

HeapOwner set_heap_owner(HeapOwner owner) {
  const HeapOwner before = owner_now;
  owner_now = owner;
  return before;
}

HeapUse heap_use(HeapOwner owner) {
  return use_of(owner);
}

void reset_heap_peaks() {
  for (HeapUse& use : uses) use.peak_bytes = use.bytes;
}

static void* allocate(size_t size) {
  void* block = std::malloc(size + sizeof(Header));
  if (block == nullptr) throw std::bad_alloc();
  auto* header = new (block) Header{owner_now};
  HeapUse& use = use_of(owner_now);
  use.bytes += bytes_of(header);
  use.peak_bytes = std::max(use.peak_bytes, use.bytes);
  return header + 1;
}

static void release(void* pointer) {
  if (pointer == nullptr) return;
  Header* header = static_cast<Header*>(pointer) - 1;
  use_of(header->owner).bytes -= bytes_of(header);
  std::free(header);
}

}  // namespace lockstep::bench

void* operator new(size_t size) {
  return lockstep::bench::allocate(size);
}
void* operator new[](size_t size) {
  return lockstep::bench::allocate(size);
}
void operator delete(void* pointer) noexcept {
  lockstep::bench::release(pointer);
}
void operator delete[](void* pointer) noexcept {
  lockstep::bench::release(pointer);
}
void operator delete(void* pointer, size_t) noexcept {
  lockstep::bench::release(pointer);
}
void operator delete[](void* pointer, size_t) noexcept {
  lockstep::bench::release(pointer);
}
