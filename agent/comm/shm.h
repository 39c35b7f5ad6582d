#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "agent/comm/link.h"
#include "agent/comm/loans.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::comm {

// How a rank waits; its neighbours read this.
enum class Sleep : uint32_t {
  kAwake = 0,
  kFutex = 1,  // wake its futex
  kPoll = 2,   // it polls descriptors too: ring it over its control connection
};

// The memory that the ranks of one node share: a bell (a futex) for each rank, and a ring of bytes
// with one writer and one reader for each ordered pair. It contains no locks, so a killed rank
// leaves nothing behind that could block the others. Everything read from it is checked.
class ShmRegion {
 public:
  // Maps an inherited memfd, empty or of at least shm_bytes(ranks) bytes. `tag` (not 0) is the
  // round's: kConflict if another round has used the memory.
  struct Options {
    int fd = -1;
    int ranks = 0;
    uint64_t tag = 0;
  };
  static Result<std::shared_ptr<ShmRegion>> attach(const Options& options);
  // The same for threads of this process.
  static Result<std::shared_ptr<ShmRegion>> anonymous(int ranks);
  ~ShmRegion();
  ShmRegion(const ShmRegion&) = delete;
  ShmRegion& operator=(const ShmRegion&) = delete;

  // Publishes where the others find this rank's process. Call it before they call find().
  void publish_process(int rank) const;
  // Returns the process that a rank has published, if this one can read its memory, which is
  // tested by reading. Otherwise an error with the reason.
  Result<PeerMemory> find(int rank) const;
  // Once all ranks have formed, they lend each other memory, unless one of them has vetoed that.
  enum class LoanVeto : uint32_t { kNone, kForbidden, kSlow, kDisabled };
  void veto_loans(LoanVeto reason);
  LoanVeto loan_veto() const;

  // Announces how this rank is about to wait, and returns the value of its bell. The caller then
  // checks again: if it finds nothing, any later change ends or prevents its sleep().
  uint32_t announce_sleep(int rank, Sleep how);
  // Sleeps while the bell still reads `seen`, for at most `timeout`.
  void sleep(int rank, uint32_t seen, Duration timeout);
  void cancel_sleep(int rank);
  // Wakes the rank if it waits. Returns true if the caller must ring it over its control
  // connection.
  [[nodiscard]] bool wake(int rank);

 private:
  friend class ShmLink;
  struct Slot;
  struct Ring;
  struct Preamble;
  ShmRegion(void* base, size_t bytes, int ranks);
  Preamble& preamble() const;
  Slot& slot(int rank) const;
  Ring& ring(int from, int to) const;

  void* base_;
  size_t bytes_;
  int ranks_;
  // Lets other processes identify this one (PeerMemory::Mark).
  std::unique_ptr<const uint64_t> mark_;
};

// The stream between two ranks of a region.
class ShmLink final : public Link {
 public:
  struct Options {
    int peer = 0;        // rank of the world
    int local_rank = 0;  // places in the region
    int local_peer = 0;
    std::function<void()> bell;  // rings the peer over its control connection
  };
  ShmLink(std::shared_ptr<ShmRegion> region, Options options);
  ShmLink(const ShmLink&) = delete;
  ShmLink& operator=(const ShmLink&) = delete;

  Result<size_t> write(std::initializer_list<Bytes> parts) override;
  Result<Bytes> peek(Want want) override;
  void consume(size_t bytes) override;
  Result<size_t> read(std::span<std::byte> into) override;
  Loans* loans() override { return &loans_; }
  std::string describe() const override;

 private:
  void notify();

  std::shared_ptr<ShmRegion> region_;
  Options options_;
  ShmRegion::Ring* out_;
  ShmRegion::Ring* in_;
  uint64_t out_head_ = 0;
  uint64_t in_tail_ = 0;
  Loans loans_;
};

}  // namespace lockstep::comm
