#include "agent/rpc/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "agent/comm/socket.h"
#include "common/base/check.h"
#include "common/base/nonce.h"

namespace lockstep::rpc {
namespace {

constexpr char kName[] = "lockstep-rpc";
// A segment: the token, the words of loans, and from here on the memory.
constexpr size_t kMemoryOffset = size_t{16} << 10;
constexpr size_t kWordsOffset = 64;
constexpr uint32_t kWords = 1024;
static_assert(kWordsOffset + kWords * sizeof(uint64_t) <= kMemoryOffset);
constexpr size_t kSegmentBytesMax = size_t{1} << 46;

std::atomic<uint64_t>& word_at(std::byte* base, uint32_t index) {
  return *reinterpret_cast<std::atomic<uint64_t>*>(base + kWordsOffset + index * sizeof(uint64_t));
}

Status refused(const std::string& why) {
  return unavailable("[rpc] shared memory: " + why);
}

// Opens what the peer says is its descriptor of a segment. Looks before opening: a file of another
// kind could do anything when opened.
Result<comm::UniqueFd> open_segment(uint64_t process, int32_t fd) {
  const std::string path =
      "/proc/" + std::to_string(process) + "/fd/" + std::to_string(std::max(fd, 0));
  const std::string expected = std::string("/memfd:") + kName + " (deleted)";
  std::array<char, 64> target{};
  const ssize_t got = ::readlink(path.c_str(), target.data(), target.size());
  if (got < 0) return errno_error("[rpc] shared memory: reading " + path, errno);
  if (std::string_view(target.data(), static_cast<size_t>(got)) != expected) {
    return unavailable("[rpc] shared memory: " + path + " is something else");
  }
  comm::UniqueFd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened) return errno_error("[rpc] shared memory: opening " + path, errno);
  return opened;
}

}  // namespace

Result<std::shared_ptr<SharedMemory>> SharedMemory::create(size_t bytes) {
  if (bytes == 0 || bytes > kSegmentBytesMax) return invalid("[rpc] shared memory: no such size");
  comm::UniqueFd fd(::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return errno_error("[rpc] creating shared memory", errno);
  const size_t whole = kMemoryOffset + bytes;
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::ftruncate(fd.get(), static_cast<off_t>(whole)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return errno_error("[rpc] sizing shared memory", errno);
  }
  void* base = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return errno_error("[rpc] mapping shared memory", errno);
  const Digest token = random_nonce();
  std::memcpy(base, token.data(), sizeof(SegmentNotice::token));
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(fd.release(), {static_cast<std::byte*>(base), whole}));
}

SharedMemory::SharedMemory(int fd, std::span<std::byte> whole)
    : fd_(fd), whole_(whole), memory_(whole.subspan(kMemoryOffset)) {}

SharedMemory::~SharedMemory() {
  ::munmap(whole_.data(), whole_.size());
  ::close(fd_);
}

SegmentNotice SharedMemory::notice() const {
  SegmentNotice notice{.bytes = whole_.size(), .fd = fd_};
  std::memcpy(notice.token.data(), whole_.data(), notice.token.size());
  return notice;
}

std::optional<uint64_t> SharedMemory::offset_of(Bytes bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
  const auto at = reinterpret_cast<uintptr_t>(bytes.data());
  if (at < begin || at - begin > memory_.size() || bytes.size() > memory_.size() - (at - begin)) {
    return {};
  }
  return at - begin;
}

std::optional<SharedMemory::Word> SharedMemory::take_word() {
  for (uint32_t tries = 0; tries < kWords; ++tries) {
    const uint64_t value = loans_.fetch_add(1) + 1;
    const auto index = static_cast<uint32_t>(value % kWords);
    uint64_t free = 0;
    if (word_at(whole_.data(), index).compare_exchange_strong(free, value)) {
      return Word{.index = index, .value = value};
    }
  }
  return {};
}

// Sequentially consistent: what the owner writes to the memory afterwards comes later.
void SharedMemory::give_back(Word word) {
  uint64_t value = word.value;
  CHECK(word_at(whole_.data(), word.index).compare_exchange_strong(value, 0));
}

Result<PeerSegment> PeerSegment::map(uint64_t process, const SegmentNotice& notice) {
  if (notice.bytes <= kMemoryOffset || notice.bytes > kSegmentBytesMax) {
    return refused("no such size").error();
  }
  TRY_ASSIGN(const comm::UniqueFd fd, open_segment(process, notice.fd));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || info.st_size < 0 ||
      static_cast<uint64_t>(info.st_size) != notice.bytes) {
    return refused("it has another size").error();
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return refused("it could shrink").error();
  void* base = ::mmap(nullptr, notice.bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return errno_error("[rpc] mapping shared memory", errno);
  PeerSegment segment(Bytes(static_cast<const std::byte*>(base), notice.bytes));
  if (std::memcmp(base, notice.token.data(), notice.token.size()) != 0) {
    return refused("it is another process's").error();
  }
  return segment;
}

PeerSegment::PeerSegment(PeerSegment&& other) noexcept
    : whole_(std::exchange(other.whole_, Bytes())) {}

PeerSegment& PeerSegment::operator=(PeerSegment&& other) noexcept {
  std::swap(whole_, other.whole_);
  return *this;
}

PeerSegment::~PeerSegment() {
  if (!whole_.empty()) ::munmap(const_cast<std::byte*>(whole_.data()), whole_.size());
}

std::optional<Bytes> PeerSegment::at(uint64_t offset, uint64_t bytes) const {
  const uint64_t size = whole_.size() - kMemoryOffset;
  if (offset > size || bytes > size - offset) return {};
  return whole_.subspan(kMemoryOffset + offset, bytes);
}

bool PeerSegment::still_lent(uint32_t word, uint64_t value) const {
  if (word >= kWords || value == 0) return false;
  // Keeps the copy before the load. The thread sanitizer does not model fences.
  std::atomic<uint32_t> order{0};
  order.exchange(1);
  return word_at(const_cast<std::byte*>(whole_.data()), word).load() == value;
}

}  // namespace lockstep::rpc
