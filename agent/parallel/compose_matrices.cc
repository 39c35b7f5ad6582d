// The ranks of a Composition that divide Muon's matrices.
#include <numeric>
#include <utility>
#include <vector>

#include "agent/parallel/compose.h"

namespace lockstep::parallel {

// Those of this stage; with shards, those that together have all of them. They are neighbours, the
// tensor peers among them first.
Status Composition::build_matrix_group() {
  if (options_.optimizer.kind != optim::OptimizerKind::kMuon) return {};
  const bool is_sharded = options_.sharding.sharding != Sharding::kNone;
  const Mesh& mesh = options_.mesh;
  const int64_t indices = is_sharded ? shards().ranks() : mesh.data;
  MeshCoordinates first = options_.place;
  first.data = is_sharded ? state_layout_->replica(world_.rank()) * indices : 0;
  first.tensor = 0;
  std::vector<int> ranks(static_cast<size_t>(indices * mesh.tensor));
  std::iota(ranks.begin(), ranks.end(), static_cast<int>(rank_of(mesh, first)));
  muon_ranks_ = {.rank = world_.rank() - ranks.front(),
                 .ranks = static_cast<int>(ranks.size()),
                 .tensor = static_cast<int>(mesh.tensor)};
  for (int64_t i = 0; is_sharded && i < indices; ++i) {
    muon_ranks_.slices.push_back(shards().slices(i));
  }
  if (ranks.size() == 1) return {};
  TRY_ASSIGN(matrix_group_, world_.sub_group(ranks));
  return {};
}

}  // namespace lockstep::parallel
