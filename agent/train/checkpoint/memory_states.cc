#include "agent/train/checkpoint/memory_states.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <new>
#include <utility>

namespace lockstep::train {
namespace {

constexpr uint64_t kMagic = 0x3273746174732d6c;  // "l-stats2"
constexpr uint64_t kPageBytes = 4096;

uint64_t place_bytes(uint64_t values) {
  return (values * sizeof(float) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

// A process is killed between any two instructions, and the next one sees what it has stored. So a
// place's step is set last, and removed before its values change.
struct MemoryStates::Head {
  struct Place {
    std::atomic<int64_t> step;
    KeptState state;
  };
  std::atomic<uint64_t> magic;  // set last
  uint64_t values;
  Digest identity;
  KeptShare share;
  std::array<Place, kPlaces> places;
};

uint64_t MemoryStates::bytes(uint64_t values) {
  return kPageBytes + kPlaces * place_bytes(values);
}

Status MemoryStates::resize(int fd, uint64_t bytes) {
  struct stat status = {};
  if (fstat(fd, &status) != 0) return errno_error("[memory states] reading the size", errno);
  if (static_cast<uint64_t>(status.st_size) == bytes) return {};
  // An emptied file has zeroes, which is no head.
  if (ftruncate(fd, 0) != 0) return errno_error("[memory states] emptying the file", errno);
  return parallel::allocate_shared({.fd = fd}, bytes, "states in memory");
}

Result<MemoryStates> MemoryStates::map_bytes(const parallel::SharedPlace& place, uint64_t values) {
  static_assert(sizeof(Head) <= kPageBytes);
  const uint64_t bytes = MemoryStates::bytes(values);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, place.fd,
                    static_cast<off_t>(place.offset));
  if (data == MAP_FAILED) {
    return errno_error("[memory states] mapping " + std::to_string(bytes) + " bytes", errno);
  }
  return MemoryStates(std::launder(static_cast<Head*>(data)), bytes, values);
}

bool MemoryStates::is_of(const Digest& identity) const {
  return head_->magic.load(std::memory_order_acquire) == kMagic && head_->identity == identity;
}

Result<std::optional<MemoryStates>> MemoryStates::find(const parallel::SharedPlace& place,
                                                       const Digest& identity) {
  struct stat status = {};
  if (fstat(place.fd, &status) != 0) return errno_error("[memory states] reading the size", errno);
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size < place.offset + bytes(0)) return std::optional<MemoryStates>();
  uint64_t values = 0;
  {
    TRY_ASSIGN(const MemoryStates head, map_bytes(place, 0));
    if (!head.is_of(identity)) return std::optional<MemoryStates>();
    values = head.head_->values;
  }
  const bool fits = values <= size && place.offset + bytes(values) <= size;
  if (!fits) return std::optional<MemoryStates>();
  TRY_ASSIGN(MemoryStates states, map_bytes(place, values));
  return std::optional(std::move(states));
}

Result<MemoryStates> MemoryStates::map(const parallel::SharedPlace& place, const Digest& identity,
                                       const KeptShare& share, uint64_t values) {
  TRY_ASSIGN(MemoryStates states, map_bytes(place, values));
  Head& head = *states.head_;
  if (!states.is_of(identity) || head.values != values || head.share != share) {
    head.magic.store(0, std::memory_order_seq_cst);
    states.forget_after(-1);
    head.values = values;
    head.identity = identity;
    head.share = share;
    head.magic.store(kMagic, std::memory_order_release);
  }
  return states;
}

const KeptShare& MemoryStates::share() const {
  return head_->share;
}

MemoryStates::MemoryStates(MemoryStates&& other) noexcept
    : head_(std::exchange(other.head_, nullptr)),
      bytes_(other.bytes_),
      values_(other.values_),
      begun_(other.begun_) {}

MemoryStates& MemoryStates::operator=(MemoryStates&& other) noexcept {
  std::swap(head_, other.head_);
  std::swap(bytes_, other.bytes_);
  std::swap(values_, other.values_);
  std::swap(begun_, other.begun_);
  return *this;
}

MemoryStates::~MemoryStates() {
  if (head_ != nullptr) munmap(head_, bytes_);
}

std::array<KeptState, MemoryStates::kPlaces> MemoryStates::kept() const {
  std::array<KeptState, kPlaces> all;
  for (size_t i = 0; i < kPlaces; ++i) {
    const Head::Place& place = head_->places[i];
    const int64_t step = place.step.load(std::memory_order_acquire);
    if (step < 0) continue;
    all[i] = place.state;
    all[i].step = step;
  }
  return all;
}

std::span<float> MemoryStates::place(size_t i) const {
  std::byte* const first = reinterpret_cast<std::byte*>(head_) + kPageBytes;
  return {reinterpret_cast<float*>(first + i * place_bytes(values_)), values_};
}

std::span<const float> MemoryStates::values_of(int64_t step) const {
  const size_t i = head_->places[0].step.load(std::memory_order_acquire) == step ? 0 : 1;
  CHECK(step >= 0 && head_->places[i].step.load(std::memory_order_acquire) == step);
  return place(i);
}

size_t MemoryStates::older() const {
  const std::array<KeptState, kPlaces> all = kept();
  return all[0].step <= all[1].step ? 0 : 1;
}

std::span<float> MemoryStates::begin() {
  begun_ = older();
  head_->places[begun_].step.exchange(-1);  // before the values change: a full barrier
  return place(begun_);
}

void MemoryStates::complete(const KeptState& state) {
  Head::Place& place = head_->places[begun_];
  place.state = state;
  place.step.store(state.step, std::memory_order_release);
}

void MemoryStates::forget_after(int64_t step) {
  for (Head::Place& place : head_->places) {
    if (place.step.load(std::memory_order_relaxed) > step) place.step.store(-1);
  }
}

}  // namespace lockstep::train
