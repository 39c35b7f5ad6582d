#include "agent/parallel/world_totals.h"

#include <vector>

namespace lockstep::parallel {
namespace {

bool counts(const Mesh& mesh, int64_t rank) {
  const MeshCoordinates at = coordinates(mesh, rank);
  return at.tensor == 0 && at.pipeline == mesh.pipeline - 1;
}

}  // namespace

Result<WorldTotals> add_up(comm::Communicator& world, const Mesh& mesh, const RankTotals& mine) {
  TRY_ASSIGN(const std::vector<RankTotals> ranks, world.all_gather_value(mine));
  WorldTotals totals;
  double loss_sum = 0;
  int64_t tokens = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    totals.stop = totals.stop || ranks[rank].stop != 0;
    if (!counts(mesh, static_cast<int64_t>(rank))) continue;
    loss_sum += ranks[rank].loss_sum;
    tokens += ranks[rank].tokens;
  }
  if (tokens > 0) totals.loss = loss_sum / static_cast<double>(tokens);
  return totals;
}

}  // namespace lockstep::parallel
