// A pool allocator for the simulation's programs. A seed allocates and frees a hundred thousand
// small objects, mostly of JSON documents, and the C library's allocator would take a third of its
// time. A slab holds blocks of a single size class, stored in the slab's header, so blocks need no
// headers and lie close together. Free blocks are kept in thread-local lists by size class and
// never returned to the system. Not linked into sanitizer builds, which bring their own allocator.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

constexpr size_t kStep = 16;  // between size classes, and operator new's alignment
constexpr size_t kClasses = 128;
constexpr size_t kSlabBytes = size_t{16} << 10;  // also its alignment

struct Free {
  Free* next;
};

struct alignas(kStep) Slab {
  size_t size_class;  // kClasses: one large block
};

struct Pool {
  std::array<Free*, kClasses> free{};
};
thread_local Pool pool;

size_t class_of(size_t bytes) {
  return bytes == 0 ? 0 : (bytes - 1) / kStep;
}

Slab* slab_of(void* block) {
  return reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(block) & ~(kSlabBytes - 1));
}

Slab* make_slab(size_t size_class, size_t bytes) {
  void* memory = std::aligned_alloc(kSlabBytes, (bytes + kSlabBytes - 1) & ~(kSlabBytes - 1));
  if (memory == nullptr) throw std::bad_alloc();
  return new (memory) Slab{size_class};
}

// Links a new slab's blocks in address order into the free list. Returns the first block.
void* carve(size_t size_class) {
  const size_t bytes = (size_class + 1) * kStep;
  auto* first = reinterpret_cast<std::byte*>(make_slab(size_class, kSlabBytes) + 1);
  Free* rest = nullptr;
  for (size_t i = (kSlabBytes - sizeof(Slab)) / bytes - 1; i > 0; --i) {
    rest = new (first + i * bytes) Free{rest};
  }
  pool.free[size_class] = rest;
  return first;
}

void* take(size_t bytes) {
  const size_t size_class = class_of(bytes);
  if (size_class >= kClasses) return make_slab(kClasses, sizeof(Slab) + bytes) + 1;
  Free* block = pool.free[size_class];
  if (block == nullptr) return carve(size_class);
  pool.free[size_class] = block->next;
  return block;
}

void put(void* block, size_t size_class) {
  if (size_class >= kClasses) return std::free(slab_of(block));
  Free*& first = pool.free[size_class];
  first = new (block) Free{first};
}

void give_back(void* block) {
  if (block != nullptr) put(block, slab_of(block)->size_class);
}

void give_back(void* block, size_t bytes) {
  if (block != nullptr) put(block, class_of(bytes));
}

}  // namespace

void* operator new(size_t bytes) {
  return take(bytes);
}
void* operator new[](size_t bytes) {
  return take(bytes);
}
void operator delete(void* block) noexcept {
  give_back(block);
}
void operator delete[](void* block) noexcept {
  give_back(block);
}
void operator delete(void* block, size_t bytes) noexcept {
  give_back(block, bytes);
}
void operator delete[](void* block, size_t bytes) noexcept {
  give_back(block, bytes);
}
