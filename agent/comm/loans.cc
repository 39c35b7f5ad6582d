#include "agent/comm/loans.h"

#include <utility>

#include "common/base/check.h"

namespace lockstep::comm {
namespace {

enum class State : uint64_t { kOut = 1, kReturned = 2, kRevoked = 3 };

uint64_t state_of(uint64_t loan, State state) {
  return loan << 2 | static_cast<uint64_t>(state);
}

}  // namespace

uint64_t Loans::lend(std::span<const std::byte> memory) {
  CHECK(lends());
  const uint64_t loan = ++made_;
  out_[index_of(loan)] = {.loan = loan, .bytes = memory.size()};
  LoanPlace& place = (*options_.lent)[index_of(loan)];
  place.address.store(reinterpret_cast<uintptr_t>(memory.data()), std::memory_order_relaxed);
  place.bytes.store(memory.size(), std::memory_order_relaxed);
  place.taken.store(0, std::memory_order_relaxed);
  place.state.store(state_of(loan, State::kOut), std::memory_order_release);
  return loan;
}

Result<std::optional<size_t>> Loans::returned(uint64_t loan) {
  const LoanPlace& place = (*options_.lent)[index_of(loan)];
  // Sequentially consistent, to order this read with the waiter's announcement of its sleep
  // (shm.cc).
  if (place.state.load() != state_of(loan, State::kReturned)) return std::optional<size_t>();
  const size_t lent = std::exchange(out_[index_of(loan)], {}).bytes;
  const uint64_t taken = place.taken.load(std::memory_order_relaxed);
  if (taken > lent) return corrupt("the borrower reports more bytes than the loan has");
  return std::optional<size_t>(taken);
}

void Loans::revoke_all() {
  for (Out& out : out_) {
    if (out.loan == 0) continue;
    uint64_t is_out = state_of(out.loan, State::kOut);
    LoanPlace& place = (*options_.lent)[index_of(out.loan)];
    const bool revoked =
        place.state.compare_exchange_strong(is_out, state_of(out.loan, State::kRevoked));
    if (revoked) out = {};
  }
}

Result<size_t> Loans::read(uint64_t loan, size_t at, std::span<std::byte> into) const {
  const LoanPlace& place = (*options_.borrowed)[index_of(loan)];
  if (place.state.load(std::memory_order_acquire) != state_of(loan, State::kOut)) {
    return unavailable("it revoked the loan");
  }
  const uint64_t bytes = place.bytes.load(std::memory_order_relaxed);
  if (at > bytes || into.size() > bytes - at) return corrupt("a loan is smaller than its frame");
  if (!peer_.has_value()) return size_t{0};
  return peer_->read(place.address.load(std::memory_order_relaxed) + at, into);
}

Status Loans::give_back(uint64_t loan, size_t taken) {
  LoanPlace& place = (*options_.borrowed)[index_of(loan)];
  place.taken.store(taken, std::memory_order_relaxed);
  uint64_t out = state_of(loan, State::kOut);
  if (!place.state.compare_exchange_strong(out, state_of(loan, State::kReturned))) {
    return unavailable("it revoked the loan");
  }
  options_.on_returned();
  return {};
}

}  // namespace lockstep::comm
