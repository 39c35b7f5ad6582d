#include "common/api/progress_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <utility>

#include "common/base/check.h"

namespace lockstep {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr int kReadTries = 1000;
constexpr uint64_t kMagic = 0x4c4b53'50524f47'02;  // "LKSPROG" and the layout's version
// The agent may neither lose the page under its feet (a shrunk file raises SIGBUS) nor see it grow.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static_assert(sizeof(ProgressNumbers) % sizeof(uint64_t) == 0);
using Words = std::array<uint64_t, sizeof(ProgressNumbers) / sizeof(uint64_t)>;

}  // namespace

// A sequence lock after Boehm, "Can seqlocks get along with programming language memory models?"
// (MSPC 2012): the numbers themselves are atomic words, so that no read is a data race; release on
// every word keeps it behind the odd sequence, acquire keeps it before the second look at it.
// Without fences, which the thread sanitizer does not model. Even: at rest.
struct ProgressPage::Layout {
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> sequence;
  std::array<std::atomic<uint64_t>, std::tuple_size_v<Words>> words;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

CollectiveBoard ProgressPage::board() const {
  constexpr size_t kBoardAt = 1024;
  static_assert(sizeof(Layout) <= kBoardAt && kBoardAt + CollectiveBoard::kBytes <= kPageBytes);
  CHECK(page_ != nullptr);
  return CollectiveBoard(reinterpret_cast<std::byte*>(page_) + kBoardAt);
}

Result<ProgressPage> ProgressPage::create() {
  const int fd = memfd_create("lockstep-progress", MFD_ALLOW_SEALING);
  if (fd < 0) return errno_error("[progress page] memfd_create", errno);
  if (ftruncate(fd, kPageBytes) != 0 || fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    const int error = errno;
    close(fd);
    return errno_error("[progress page] size and seals", error);
  }
  void* memory = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    close(fd);
    return errno_error("[progress page] mmap", error);
  }
  auto* page = static_cast<Layout*>(memory);
  page->magic.store(kMagic, std::memory_order_release);
  return ProgressPage(fd, page);
}

Result<ProgressPage> ProgressPage::attach(int fd) {
  const std::string where = "[progress page] descriptor " + std::to_string(fd);
  struct stat status = {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || fstat(fd, &status) != 0) {
    return invalid(where + ": a memory file, expected one made by the agent");
  }
  if ((seals & kSeals) != kSeals || status.st_size != static_cast<off_t>(kPageBytes)) {
    return invalid(where + ": a sealed page of 4096 bytes, found " +
                   std::to_string(status.st_size) + " bytes");
  }
  void* memory = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return errno_error(where + ": mmap", errno);
  auto* page = static_cast<Layout*>(memory);
  if (page->magic.load(std::memory_order_acquire) != kMagic) {
    munmap(memory, kPageBytes);
    return invalid(where + ": a page of this version, found another kind");
  }
  return ProgressPage(fd, page);
}

ProgressPage::ProgressPage(ProgressPage&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), page_(std::exchange(other.page_, nullptr)) {}

ProgressPage& ProgressPage::operator=(ProgressPage&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(page_, other.page_);
  return *this;
}

ProgressPage::~ProgressPage() {
  if (page_ != nullptr) munmap(page_, kPageBytes);
  if (fd_ >= 0) close(fd_);
}

void ProgressPage::write(const ProgressNumbers& numbers) {
  CHECK(page_ != nullptr);
  const Words words = std::bit_cast<Words>(numbers);
  // A writer killed in mid-write left an odd number; its successor on the page makes it even again.
  const uint64_t before = page_->sequence.load(std::memory_order_relaxed) & ~uint64_t{1};
  page_->sequence.store(before + 1, std::memory_order_relaxed);
  for (size_t i = 0; i < words.size(); ++i) {
    page_->words[i].store(words[i], std::memory_order_release);
  }
  page_->sequence.store(before + 2, std::memory_order_release);
}

bool ProgressPage::read(ProgressNumbers& numbers) const {
  CHECK(page_ != nullptr);
  for (int i = 0; i < kReadTries; ++i) {
    const uint64_t before = page_->sequence.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    Words words;
    for (size_t w = 0; w < words.size(); ++w) {
      words[w] = page_->words[w].load(std::memory_order_acquire);
    }
    if (page_->sequence.load(std::memory_order_relaxed) != before) continue;
    numbers = std::bit_cast<ProgressNumbers>(words);
    return true;
  }
  return false;
}

}  // namespace lockstep
