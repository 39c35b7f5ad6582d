// Memory for the simulation's programs: a seed makes and drops a hundred thousand small objects, of
// JSON documents for the most part, and the C library's allocator would take a third of its time.
// Blocks of one size class wait in a list of each thread; they never go back to the system. Left
// out of builds with sanitizers, which have an allocator of their own.
#include <array>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constexpr size_t kStep = 16;  // between size classes, and what operator new aligns to
constexpr size_t kClasses = 64;
constexpr size_t kSlabBytes = size_t{256} << 10;

struct Free {
  Free* next;
};

// In front of every block.
struct alignas(kStep) Header {
  size_t size_class;  // kClasses: of the C library
};

struct Pool {
  std::array<Free*, kClasses> free{};
  std::byte* slab = nullptr;
  size_t left = 0;
};
thread_local Pool pool;

Header* carve(size_t size_class) {
  const size_t bytes = sizeof(Header) + (size_class + 1) * kStep;
  if (pool.left < bytes) {
    void* slab = std::malloc(kSlabBytes);
    if (slab == nullptr) throw std::bad_alloc();
    pool.slab = static_cast<std::byte*>(slab);
    pool.left = kSlabBytes;
  }
  auto* header = new (pool.slab) Header{size_class};
  pool.slab += bytes;
  pool.left -= bytes;
  return header;
}

void* take(size_t bytes) {
  const size_t size_class = bytes == 0 ? 0 : (bytes - 1) / kStep;
  if (size_class < kClasses) {
    Free*& first = pool.free[size_class];
    if (first == nullptr) return carve(size_class) + 1;
    Free* block = first;
    first = block->next;
    return block;
  }
  void* memory = std::malloc(sizeof(Header) + bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return new (memory) Header{kClasses} + 1;
}

void give_back(void* block) {
  if (block == nullptr) return;
  Header* header = static_cast<Header*>(block) - 1;
  if (header->size_class == kClasses) return std::free(header);
  Free*& first = pool.free[header->size_class];
  first = new (block) Free{first};
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
void operator delete(void* block, size_t) noexcept {
  give_back(block);
}
void operator delete[](void* block, size_t) noexcept {
  give_back(block);
}
