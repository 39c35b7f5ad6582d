#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/optim/muon.h"
#include "common/base/result.h"
#include "common/layout/shard_layout.h"

namespace lockstep::parallel {

// The ways of Muon's matrices between the ranks that divide them: to their owners before they are
// orthogonalised, and back. They stay in place of the gradients. With n ranks and S bytes of
// matrices, the ranks together send (n-1) S in a step. If each has slices of 1/n, they send
// 2 (n-1)/n S. One thread; on CPUs.
class MatrixExchange {
 public:
  // `gradients` has the layout of the arena. `slices`: those of each rank of the group; empty: all
  // of them have all gradients. The group and the memory outlive it.
  MatrixExchange(comm::Communicator& group, float* gradients,
                 std::vector<std::vector<ShardSlice>> slices)
      : group_(&group), gradients_(gradients), slices_(std::move(slices)) {}

  // Brings the directions of matrices to their owners. Errors are the communicator's.
  Status collect(std::span<const optim::MuonMatrix> matrices) const;
  // Brings the updates of matrices from their owners to the ranks that apply them.
  Status spread(std::span<const optim::MuonMatrix> matrices) const;

 private:
  enum class Way : uint8_t { kToOwner, kFromOwner };
  Status move(const optim::MuonMatrix& matrix, Way way) const;
  std::vector<comm::Call> calls(const optim::MuonMatrix& matrix, int rank, Way way) const;

  comm::Communicator* group_;
  float* gradients_;
  std::vector<std::vector<ShardSlice>> slices_;  // by rank
};

}  // namespace lockstep::parallel
