#include "agent/parallel/world_totals.h"

#include <vector>

namespace lockstep::parallel {
namespace {

bool counts(const Mesh& mesh, int64_t rank) {
  const MeshCoordinates at = coordinates(mesh, rank);
  return at.tensor == 0 && at.pipeline == mesh.pipeline - 1;
}

}  // namespace

Status add_up_squares(const RankGroups& groups, const Mesh& mesh, const DeviceSquares& mine) {
  for (const Axis axis : {Axis::kTensor, Axis::kPipeline}) {
    if ((axis == Axis::kTensor ? mesh.tensor : mesh.pipeline) == 1) continue;
    TRY_ASSIGN(comm::Communicator* const group, groups.of(axis));
    TRY(group->all_reduce({.data = mine.sum,
                           .count = kernels::kSquareWords,
                           .type = comm::DataType::kI64,
                           .device = mine.device,
                           .stream = mine.stream.handle()},
                          comm::ReduceOp::kSum));
  }
  return {};
}

Result<WorldTotals> add_up(comm::Communicator& world, const Mesh& mesh, const RankTotals& mine) {
  TRY_ASSIGN(const std::vector<RankTotals> ranks, world.all_gather_value(mine));
  WorldTotals totals;
  double loss_sum = 0, right = 0;
  int64_t counted = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    totals.stop = totals.stop || ranks[rank].stop != 0;
    totals.busy = totals.busy || ranks[rank].busy != 0;
    if (!counts(mesh, static_cast<int64_t>(rank))) continue;
    loss_sum += ranks[rank].loss_sum;
    right += ranks[rank].right;
    counted += ranks[rank].counted;
  }
  totals.counted = counted;
  if (counted == 0) return totals;
  totals.loss = loss_sum / static_cast<double>(counted);
  totals.accuracy = right / static_cast<double>(counted);
  return totals;
}

}  // namespace lockstep::parallel
