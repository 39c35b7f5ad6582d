#include "agent/parallel/matrix_exchange.h"

namespace lockstep::parallel {

Status MatrixExchange::collect(std::span<const optim::MuonMatrix> matrices) const {
  if (slices_.empty()) return {};
  for (const optim::MuonMatrix& matrix : matrices) TRY(move(matrix, Way::kToOwner));
  return {};
}

Status MatrixExchange::spread(std::span<const optim::MuonMatrix> matrices) const {
  for (const optim::MuonMatrix& matrix : matrices) {
    if (!slices_.empty()) {
      TRY(move(matrix, Way::kFromOwner));
    } else if (group_->size() > 1) {
      TRY(group_->broadcast({.data = gradients_ + matrix.offset, .count = matrix.shape.count()},
                            matrix.owner));
    }
  }
  return {};
}

// The owner exchanges with one rank after the other, and needs nothing from itself.
Status MatrixExchange::move(const optim::MuonMatrix& matrix, Way way) const {
  const bool is_owner = group_->rank() == matrix.owner;
  for (int rank = 0; rank < group_->size(); ++rank) {
    if (rank == matrix.owner || (!is_owner && rank != group_->rank())) continue;
    const std::vector<comm::Call> parts = calls(matrix, rank, way);
    if (!parts.empty()) TRY(group_->run(parts));
  }
  return {};
}

// Those of this rank, for the parts that `rank` has of the matrix.
std::vector<comm::Call> MatrixExchange::calls(const optim::MuonMatrix& matrix, int rank,
                                              Way way) const {
  const bool is_owner = group_->rank() == matrix.owner;
  const bool sends = is_owner == (way == Way::kFromOwner);
  const int64_t end = matrix.offset + matrix.shape.count();
  std::vector<comm::Call> calls;
  for (const ShardSlice& slice :
       offsets_within(slices_[static_cast<size_t>(rank)], matrix.offset, end)) {
    calls.push_back({.kind = sends ? comm::Collective::kSend : comm::Collective::kReceive,
                     .buffer = {.data = gradients_ + slice.offset, .count = slice.count},
                     .rank = is_owner ? rank : matrix.owner});
  }
  return calls;
}

}  // namespace lockstep::parallel
