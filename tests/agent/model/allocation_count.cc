#include "tests/agent/model/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};
std::atomic<int64_t> requested{0};

}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  requested += static_cast<int64_t>(bytes);
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace lockstep::test {

int64_t allocation_count() {
  return allocations;
}

int64_t allocated_bytes() {
  return requested;
}

}  // namespace lockstep::test
