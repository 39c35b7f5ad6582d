#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "agent/comm/peer_memory.h"
#include "common/base/result.h"

namespace lockstep::comm {

// Where a loan is published, in memory that both sides share. All zeros: no loan yet.
struct LoanPlace {
  alignas(64) std::atomic<uint64_t> state;  // the loan's number and state
  std::atomic<uint64_t> address;            // in the lender's process
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> taken;  // set when the loan is given back
};
constexpr size_t kLoanPlaces = 16;
using LoanPlaces = std::array<LoanPlace, kLoanPlaces>;

// Memory that one side of a link lends to the other, which copies directly from it: one copy, where
// the link takes two. A frame of the link announces each loan (frame.h). The n-th such frame is of
// loan n, so both sides use the same numbers. The lender leaves the memory alone until the loan is
// returned. If it cannot wait, it takes all loans back. A borrower that is reading learns of this
// when it gives the loan back, and must discard what it has read. One thread at a time on each
// side.
class Loans {
 public:
  struct Options {
    LoanPlaces* lent = nullptr;         // to the other side
    LoanPlaces* borrowed = nullptr;     // from it
    std::function<void()> on_returned;  // tells the other side that a loan was returned
  };
  explicit Loans(Options options) : options_(std::move(options)) {}

  // Lets this side read the other side's memory from now on.
  void attach_peer(PeerMemory peer) { peer_ = peer; }

  // For the lender. Nothing is lent before enable(), which says that the other side has called
  // attach_peer().
  void enable() { lends_ = true; }
  bool lends() const { return lends_ && free_at(made_ + 1); }
  // Lends the memory and returns the loan's number. Only while lends().
  uint64_t lend(std::span<const std::byte> memory);
  // Returns how many bytes of the loan were taken, once it is returned, and nothing while it is
  // out. They are fewer than were lent if the other side cannot read them. kCorrupt if they are
  // more.
  Result<std::optional<size_t>> returned(uint64_t loan);
  void revoke_all();

  // For the borrower. Reads from `at` bytes after the loan's beginning; returns how many bytes
  // could be read, 0 if reading is not possible. kUnavailable: the lender has ended or has taken
  // the loan back. kCorrupt: the loan is not that large.
  Result<size_t> read(uint64_t loan, size_t at, std::span<std::byte> into) const;
  // Gives the loan back after taking this many bytes of it. kUnavailable: it was taken back
  // meanwhile, and the bytes are worthless.
  Status give_back(uint64_t loan, size_t taken);

 private:
  static size_t index_of(uint64_t loan) { return loan % kLoanPlaces; }
  bool free_at(uint64_t loan) const { return out_[index_of(loan)].loan == 0; }

  Options options_;
  std::optional<PeerMemory> peer_;
  bool lends_ = false;
  uint64_t made_ = 0;
  struct Out {
    uint64_t loan = 0;  // 0: none
    size_t bytes = 0;
  };
  std::array<Out, kLoanPlaces> out_{};  // by place
};

}  // namespace lockstep::comm
