#include "agent/parallel/offload/far_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::parallel {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr uintptr_t kHugePageBytes = uintptr_t{2} << 20;
// As much as is used at a time. Smaller runs cost more system calls than they save memory.
constexpr int64_t kMappedCount = (int64_t{1} << 20) / kFloatBytes;

}  // namespace

void FarMemory::Unmap::operator()(void* mapping) const {
  munmap(mapping, bytes);
}

FarMemory::FarMemory(kernels::Workspace page_locked)
    : data_(static_cast<float*>(page_locked.data)),
      count_(static_cast<int64_t>(page_locked.bytes) / kFloatBytes) {
  if (count_ > 0) std::memset(data_, 0, page_locked.bytes);
}

Result<FarMemory> FarMemory::in_file(const ScratchOptions& options) {
  CHECK(options.bytes % kFloatBytes == 0);
  FarMemory memory;
  if (options.bytes == 0) return memory;
  TRY_ASSIGN(memory.file_, ScratchFile::create(options));
  const auto bytes = static_cast<size_t>(options.bytes);
  void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                       memory.file_->descriptor(), /*offset=*/0);
  if (mapping == MAP_FAILED) {
    return errno_error(
        "[offload] mapping " + std::to_string(bytes) + " bytes of a scratch file for " + options.by,
        errno);
  }
  memory.mapping_ = {mapping, Unmap{bytes}};
  memory.data_ = static_cast<float*>(mapping);
  memory.count_ = options.bytes / kFloatBytes;
  return memory;
}

// Gives back the range and what is around it, up to whole huge pages. A fault maps more than the
// page that was used: its neighbours (64 KiB), or all of a large page. Pages that others use are
// mapped again at their next use; the file keeps their values.
void FarMemory::give_back(const FarRange& range) const {
  if (!is_file() || range.count == 0) return;
  constexpr uintptr_t kMask = kHugePageBytes - 1;
  const auto at = [this](int64_t i) { return reinterpret_cast<uintptr_t>(data_ + i); };
  const uintptr_t begin = std::max(at(0), at(range.first) & ~kMask);
  const uintptr_t end = std::min(at(count_), (at(range.first + range.count) + kMask) & ~kMask);
  // Advice: there is nothing to do if it fails.
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Status FarMemory::visit(const FarRange& range, const Visit& visit) const {
  CHECK(range.first >= 0 && range.count >= 0 && range.first + range.count <= count_);
  for (int64_t at = 0; at < range.count; at += kMappedCount) {
    const FarRange part{.first = range.first + at,
                        .count = std::min(kMappedCount, range.count - at)};
    const Status visited = visit(part.first, values(part));
    give_back(part);
    if (!visited.ok()) return visited;
  }
  return {};
}

// Through the mapping: twice to four times as fast as pread() from the system's cache. The visits
// return no error.
void FarMemory::read(int64_t first, std::span<float> to) const {
  float* next = to.data();
  const FarRange range{.first = first, .count = static_cast<int64_t>(to.size())};
  (void)visit(range, [&](int64_t, std::span<float> values) {
    std::memcpy(next, values.data(), values.size_bytes());
    next += values.size();
    return Status();
  });
}

// Not through the mapping, whose pages would fault one by one: up to three times as fast, and
// failures are error numbers instead of signals.
Status FarMemory::write(int64_t first, std::span<const float> from) const {
  const FarRange range{.first = first, .count = static_cast<int64_t>(from.size())};
  CHECK(range.first >= 0 && range.first + range.count <= count_);
  if (from.empty()) return {};
  if (!is_file()) {
    std::memcpy(values(range).data(), from.data(), from.size_bytes());
    return {};
  }
  const auto* bytes = reinterpret_cast<const char*>(from.data());
  auto left = static_cast<int64_t>(from.size_bytes());
  for (int64_t at = first * kFloatBytes; left > 0;) {
    const ssize_t done = pwrite(file_->descriptor(), bytes, static_cast<size_t>(left), at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno_error("[offload] writing to a scratch file", errno);
    bytes += done;
    at += done;
    left -= done;
  }
  return {};
}

}  // namespace lockstep::parallel
