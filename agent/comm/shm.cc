#include "agent/comm/shm.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <random>

#include "agent/comm/make_communicator.h"
#include "common/base/check.h"

namespace lockstep::comm {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
// Small enough to stay in the second-level cache, large enough for a writer to run ahead.
constexpr size_t kRingBytes = size_t{512} << 10;
constexpr int kRanksMax = 4096;
// Bytes copied before the other side may see them, so that both sides work at the same time.
constexpr size_t kCopyPiece = size_t{64} << 10;

size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

// All zeros is a valid initial state.
struct ShmRegion::Slot {
  alignas(kLine) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> sleep;
  std::atomic<uint64_t> process;       // its pid; 0: not published yet
  std::atomic<uint64_t> mark_address;  // address and value of its ShmRegion::mark_
  std::atomic<uint64_t> mark_value;
};

struct ShmRegion::Ring {
  alignas(kLine) std::atomic<uint64_t> head;  // bytes ever written; for the writer
  alignas(kLine) std::atomic<uint64_t> tail;  // bytes ever read; for the reader
  alignas(kLine) std::byte data[kRingBytes];
  LoanPlaces loans;  // of the writer
};

struct ShmRegion::Preamble {
  std::atomic<uint64_t> tag;
  std::atomic<LoanVeto> loan_veto;
};

namespace {

// A process that shrank the memory would end all others with SIGBUS. It may still grow: what else
// the ranks share comes after this region (SharedSegment). Memory that does not allow seals, as
// that of older agents, stays as it is.
Status forbid_shrinking(int fd) {
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0 || errno == EPERM) return {};
  return errno_error("[comm] sealing the shared memory", errno);
}

// Returns a mark that no other process has.
uint64_t any_number() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

size_t slots_offset() {
  return kPage;
}
size_t rings_offset(int ranks) {
  return slots_offset() + round_up(static_cast<size_t>(ranks) * kLine, kPage);
}
constexpr size_t kRingStride =
    (kRingBytes + 2 * kLine + sizeof(LoanPlaces) + kPage - 1) / kPage * kPage;

}  // namespace

static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

size_t shm_bytes(int local_ranks) {
  if (local_ranks < 2) return 0;
  const auto ranks = static_cast<size_t>(local_ranks);
  return rings_offset(local_ranks) + ranks * ranks * kRingStride;
}

Result<std::shared_ptr<ShmRegion>> ShmRegion::attach(const Options& options) {
  if (options.ranks < 2 || options.ranks > kRanksMax) {
    return invalid("[comm] shared memory supports 2 to 4096 ranks, got " +
                   std::to_string(options.ranks));
  }
  struct stat info {};
  if (::fstat(options.fd, &info) != 0) {
    return invalid("[comm] descriptor " + std::to_string(options.fd) +
                   " of the shared memory: " + std::strerror(errno));
  }
  const size_t bytes = shm_bytes(options.ranks);
  // The agent leaves it empty. All ranks set the same size, so only the first changes anything.
  if (info.st_size == 0) {
    if (::ftruncate(options.fd, static_cast<off_t>(bytes)) != 0) {
      return errno_error("[comm] sizing the shared memory", errno);
    }
  } else if (info.st_size < static_cast<off_t>(bytes)) {
    return invalid("[comm] shared memory of " + std::to_string(options.ranks) + " ranks needs " +
                   std::to_string(bytes) + " bytes, got " + std::to_string(info.st_size));
  }
  TRY(forbid_shrinking(options.fd));
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, options.fd, 0);
  if (base == MAP_FAILED) return errno_error("[comm] mapping the shared memory", errno);
  std::shared_ptr<ShmRegion> region(new ShmRegion(base, bytes, options.ranks));
  uint64_t found = 0;
  if (!region->preamble().tag.compare_exchange_strong(found, options.tag) && found != options.tag) {
    return conflict("[comm] the shared memory was used by another round");
  }
  return region;
}

Result<std::shared_ptr<ShmRegion>> ShmRegion::anonymous(int ranks) {
  // A single rank has no rings, but a place to sleep.
  const size_t bytes = std::max(shm_bytes(ranks), rings_offset(ranks));
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return errno_error("[comm] mapping memory for threads", errno);
  return std::shared_ptr<ShmRegion>(new ShmRegion(base, bytes, ranks));
}

ShmRegion::ShmRegion(void* base, size_t bytes, int ranks)
    : base_(base),
      bytes_(bytes),
      ranks_(ranks),
      mark_(std::make_unique<const uint64_t>(any_number())) {}

ShmRegion::~ShmRegion() {
  ::munmap(base_, bytes_);
}

ShmRegion::Preamble& ShmRegion::preamble() const {
  return *std::launder(static_cast<Preamble*>(base_));
}

void ShmRegion::publish_process(int rank) const {
  slot(rank).mark_address.store(reinterpret_cast<uintptr_t>(mark_.get()));
  slot(rank).mark_value.store(*mark_);
  slot(rank).process.store(static_cast<uint64_t>(::getpid()));
}

Result<PeerMemory> ShmRegion::find(int rank) const {
  return PeerMemory::find(
      static_cast<pid_t>(slot(rank).process.load()),
      {.address = slot(rank).mark_address.load(), .value = slot(rank).mark_value.load()});
}

void ShmRegion::veto_loans(LoanVeto reason) {
  LoanVeto none = LoanVeto::kNone;
  preamble().loan_veto.compare_exchange_strong(none, reason);
}

ShmRegion::LoanVeto ShmRegion::loan_veto() const {
  return preamble().loan_veto.load();
}

ShmRegion::Slot& ShmRegion::slot(int rank) const {
  CHECK(rank >= 0 && rank < ranks_);
  static_assert(sizeof(Slot) == kLine);
  auto* at = static_cast<std::byte*>(base_) + slots_offset() + static_cast<size_t>(rank) * kLine;
  return *std::launder(reinterpret_cast<Slot*>(at));
}

ShmRegion::Ring& ShmRegion::ring(int from, int to) const {
  CHECK(from >= 0 && from < ranks_ && to >= 0 && to < ranks_);
  const auto index =
      static_cast<size_t>(from) * static_cast<size_t>(ranks_) + static_cast<size_t>(to);
  auto* at = static_cast<std::byte*>(base_) + rings_offset(ranks_) + index * kRingStride;
  return *std::launder(reinterpret_cast<Ring*>(at));
}

// A waiter announces itself, then checks the rings again. A neighbour moves a ring, then checks for
// waiters. Both are sequentially consistent, so that at least one of them sees the other (Dekker).
uint32_t ShmRegion::announce_sleep(int rank, Sleep how) {
  Slot& mine = slot(rank);
  const uint32_t seen = mine.bell.load();
  mine.sleep.store(static_cast<uint32_t>(how));
  return seen;
}

void ShmRegion::sleep(int rank, uint32_t seen, Duration timeout) {
  const auto nanoseconds = std::max<int64_t>(timeout.count(), 0);
  timespec relative{};
  relative.tv_sec = nanoseconds / 1'000'000'000;
  relative.tv_nsec = nanoseconds % 1'000'000'000;
  ::syscall(SYS_futex, &slot(rank).bell, FUTEX_WAIT, seen, &relative, nullptr, 0);
}

void ShmRegion::cancel_sleep(int rank) {
  slot(rank).sleep.store(static_cast<uint32_t>(Sleep::kAwake));
}

bool ShmRegion::wake(int rank) {
  Slot& other = slot(rank);
  if (other.sleep.load() == static_cast<uint32_t>(Sleep::kAwake)) return false;
  const uint32_t how = other.sleep.exchange(static_cast<uint32_t>(Sleep::kAwake));
  if (how == static_cast<uint32_t>(Sleep::kPoll)) return true;
  other.bell.fetch_add(1);
  ::syscall(SYS_futex, &other.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  return false;
}

ShmLink::ShmLink(std::shared_ptr<ShmRegion> region, Options options)
    : Link(options.peer),
      region_(std::move(region)),
      options_(std::move(options)),
      out_(&region_->ring(options_.local_rank, options_.local_peer)),
      in_(&region_->ring(options_.local_peer, options_.local_rank)),
      out_head_(out_->head.load()),
      in_tail_(in_->tail.load()),
      loans_({.lent = &out_->loans, .borrowed = &in_->loans, .on_returned = [this] { notify(); }}) {
}

std::string ShmLink::describe() const {
  switch (region_->loan_veto()) {
    case ShmRegion::LoanVeto::kNone:
      return "shared memory (large blocks in one copy)";
    case ShmRegion::LoanVeto::kForbidden:
      return "shared memory (no single copy: not permitted)";
    case ShmRegion::LoanVeto::kSlow:
      return "shared memory (no single copy: slower here)";
    case ShmRegion::LoanVeto::kDisabled:
      break;
  }
  return "shared memory";
}

void ShmLink::notify() {
  if (region_->wake(options_.local_peer)) options_.bell();
}

Result<size_t> ShmLink::write(std::initializer_list<Bytes> parts) {
  size_t taken = 0;
  const auto used = out_head_ - out_->tail.load();
  if (used > kRingBytes)
    return corrupt("the shared ring to rank " + std::to_string(peer()) + " is damaged");
  size_t room = kRingBytes - used;
  for (Bytes part : parts) {
    while (!part.empty() && room > 0) {
      const size_t at = out_head_ % kRingBytes;
      const size_t n = std::min({part.size(), room, kRingBytes - at, kCopyPiece});
      std::memcpy(out_->data + at, part.data(), n);
      out_head_ += n;
      room -= n;
      taken += n;
      part = part.subspan(n);
      if (n == kCopyPiece) out_->head.store(out_head_, std::memory_order_release);
    }
    if (!part.empty()) break;
  }
  if (taken > 0) {
    out_->head.store(out_head_);
    notify();
  }
  return taken;
}

Result<Bytes> ShmLink::peek(Want want) {
  const auto available = in_->head.load() - in_tail_;
  if (available > kRingBytes)
    return corrupt("the shared ring from rank " + std::to_string(peer()) + " is damaged");
  if (available < want.at_least) return Bytes{};
  const size_t at = in_tail_ % kRingBytes;
  return Bytes(in_->data + at, std::min({available, want.at_most, kRingBytes - at}));
}

void ShmLink::consume(size_t bytes) {
  if (bytes == 0) return;
  in_tail_ += bytes;
  in_->tail.store(in_tail_);
  notify();
}

Result<size_t> ShmLink::read(std::span<std::byte> into) {
  size_t taken = 0;
  while (taken < into.size()) {
    TRY_ASSIGN(const Bytes piece,
               peek({.at_least = 1, .at_most = std::min(into.size() - taken, kCopyPiece)}));
    if (piece.empty()) break;
    std::memcpy(into.data() + taken, piece.data(), piece.size());
    consume(piece.size());
    taken += piece.size();
  }
  return taken;
}

}  // namespace lockstep::comm
