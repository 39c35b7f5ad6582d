// The ranks of a Composition that divide Muon's matrices.
#include <numeric>
#include <utility>
#include <vector>

#include "agent/parallel/compose.h"

namespace lockstep::parallel {

// The ranks of this stage. They are neighbours, with tensor peers next to each other.
Status Composition::build_matrix_group() {
  if (options_.optimizer.kind != optim::OptimizerKind::kMuon) return {};
  const Mesh& mesh = options_.mesh;
  std::vector<int> ranks(static_cast<size_t>(mesh.data * mesh.tensor));
  const int64_t first = rank_of(mesh, {.pipeline = options_.place.pipeline});
  std::iota(ranks.begin(), ranks.end(), static_cast<int>(first));
  muon_ranks_ = {.rank = world_.rank() - ranks.front(),
                 .ranks = static_cast<int>(ranks.size()),
                 .tensor = static_cast<int>(mesh.tensor)};
  const bool is_sharded = options_.sharding.sharding != Sharding::kNone;
  for (int64_t i = 0; is_sharded && i < shards().ranks(); ++i) {
    muon_ranks_.slices.push_back(shards().slices(i));
  }
  if (ranks.size() == 1) return {};
  TRY_ASSIGN(matrix_group_, world_.sub_group(ranks));
  return {};
}

// The first operation of a group on GPUs waits until all ranks have called one, but in a step those
// that have no part of any matrix call none.
Status Composition::meet_matrix_group() {
  const bool meets = matrix_group_ != nullptr && matrix_group_->device_traits().is_stream_ordered;
  if (!meets) return {};
  return matrix_group_->all_reduce({.data = memory_of(DevicePart::kMuon).data,
                                    .count = 1,
                                    .device = options_.device,
                                    .stream = stream_.handle()},
                                   comm::ReduceOp::kSum);
}

}  // namespace lockstep::parallel
