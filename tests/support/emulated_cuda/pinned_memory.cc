#include "tests/support/emulated_cuda/pinned_memory.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "common/base/check.h"

namespace lockstep::emulated_cuda {

namespace {

constexpr size_t kPinnedAlignment = 64;

struct Pinned {
  std::mutex mutex;
  std::map<const char*, size_t> bytes;
};
Pinned& pinned() {
  static Pinned all;
  return all;
}

}  // namespace

size_t pinned_bytes_from(const void* data) {
  Pinned& all = pinned();
  const std::lock_guard lock(all.mutex);
  const auto* wanted = static_cast<const char*>(data);
  auto at = all.bytes.upper_bound(wanted);
  if (at == all.bytes.begin()) return 0;
  --at;
  const char* end = at->first + at->second;
  return wanted < end ? static_cast<size_t>(end - wanted) : 0;
}

bool pin(void* data, size_t bytes) {
  Pinned& all = pinned();
  const std::lock_guard lock(all.mutex);
  return all.bytes.emplace(static_cast<const char*>(data), bytes).second;
}

void unpin(void* data) {
  Pinned& all = pinned();
  const std::lock_guard lock(all.mutex);
  CHECK(all.bytes.erase(static_cast<const char*>(data)) == 1);
}

void* allocate_pinned(size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, kPinnedAlignment, bytes) != 0) return nullptr;
  std::memset(data, 0xFF, bytes);
  CHECK(pin(data, bytes));
  return data;
}

void release_pinned(void* data) {
  unpin(data);
  std::free(data);
}

}  // namespace lockstep::emulated_cuda
