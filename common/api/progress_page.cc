#include "common/api/progress_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "common/base/check.h"

namespace lockstep {
namespace {

constexpr size_t kPageBytes = 8192;
constexpr uint64_t kMagic = 0x4c4b53'50524f47'0c;  // "LKSPROG" and the layout's version
// The file must not shrink (the agent's access would raise SIGBUS) or grow.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

struct ProgressPage::Layout {
  std::atomic<uint64_t> magic;
  SequenceLocked<ProgressNumbers> numbers;
  SequenceLocked<GpuNumbers> gpu;
  SequenceLocked<StorageNotes> storage;
};

CollectiveBoard ProgressPage::board() const {
  constexpr size_t kBoardAt = 1648;
  static_assert(sizeof(Layout) <= kBoardAt && kBoardAt + CollectiveBoard::kBytes <= kPageBytes);
  CHECK(page_ != nullptr);
  return CollectiveBoard(reinterpret_cast<std::byte*>(page_) + kBoardAt);
}

GpuBoard ProgressPage::gpu() const {
  CHECK(page_ != nullptr);
  return GpuBoard(&page_->gpu);
}

StorageBoard ProgressPage::storage() const {
  CHECK(page_ != nullptr);
  return StorageBoard(&page_->storage);
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
  page->storage.write(StorageNotes{});  // zeros would say that step 0 could not be saved
  page->magic.store(kMagic, std::memory_order_release);
  return ProgressPage(fd, page);
}

Result<ProgressPage> ProgressPage::attach(int fd) {
  const std::string where = "[progress page] descriptor " + std::to_string(fd);
  struct stat status = {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || fstat(fd, &status) != 0) {
    return invalid(where + ": expected a memory file created by the agent, found another file");
  }
  if ((seals & kSeals) != kSeals || status.st_size != static_cast<off_t>(kPageBytes)) {
    return invalid(where + ": expected a sealed page of " + std::to_string(kPageBytes) +
                   " bytes, found " + std::to_string(status.st_size) + " bytes");
  }
  void* memory = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return errno_error(where + ": mmap", errno);
  auto* page = static_cast<Layout*>(memory);
  if (page->magic.load(std::memory_order_acquire) != kMagic) {
    munmap(memory, kPageBytes);
    return invalid(where + ": expected a progress page of this version, found another format");
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
  page_->numbers.write(numbers);
}

bool ProgressPage::read(ProgressNumbers& numbers) const {
  CHECK(page_ != nullptr);
  return page_->numbers.read(numbers);
}

}  // namespace lockstep
