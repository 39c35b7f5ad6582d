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

namespace lockstep {

// Where a loan is told of, in memory that both sides share. All zeros: none yet.
struct LoanPlace {
  alignas(64) std::atomic<uint64_t> state;  // the loan's number and where it is
  std::atomic<uint64_t> address;            // in the lender's process
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> taken;  // told when it is given back
};
constexpr size_t kLoanPlaces = 16;
using LoanPlaces = std::array<LoanPlace, kLoanPlaces>;

// Memory of its own that one side of a link lends to the other, which copies it from there itself:
// one copy, where the link takes two. A loan is announced by a frame of the link (frame.h); the
// n-th of these is of loan n, so both sides number alike. The lender leaves the memory alone until
// the loan is returned; if it can't wait, it takes all of them back, and who is reading at that
// moment learns so when it gives back: what it has read is nothing then. One thread at a time on
// each side.
class Loans {
 public:
  struct Options {
    LoanPlaces* lent = nullptr;         // to the other side
    LoanPlaces* borrowed = nullptr;     // from it
    std::function<void()> on_returned;  // tells the other side that something was
  };
  explicit Loans(Options options) : options_(std::move(options)) {}

  // From now on the other side's memory can be read here.
  void meet(PeerMemory peer) { peer_ = std::move(peer); }

  // The lender's. None is lent before allow(): the other side has met this one.
  void allow() { lends_ = true; }
  bool lends() const { return lends_ && free_at(made_ + 1); }
  // Its number. Only while lends().
  uint64_t lend(std::span<const std::byte> memory);
  // How many of its bytes were taken, once it is returned; fewer than were lent where the other
  // side can't read them. Nothing while it is out. kCorrupt for more.
  Result<std::optional<size_t>> returned(uint64_t loan);
  void take_back_all();

  // The borrower's. `at` bytes behind the loan's beginning, as many as could be read: none where
  // that is not possible. kUnavailable: the lender has ended or has taken it back; kCorrupt: it is
  // not so large.
  Result<size_t> read(uint64_t loan, size_t at, std::span<std::byte> into) const;
  // So many bytes of it were taken. kUnavailable: it was taken back meanwhile, they are worth
  // nothing.
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
  std::array<Out, kLoanPlaces> out_{};  // of each place
};

}  // namespace lockstep
