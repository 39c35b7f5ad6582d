#include "agent/parallel/world_totals.h"

#include <utility>
#include <vector>

namespace lockstep::parallel {
namespace {

bool counts(const Mesh& mesh, const MeshCoordinates& at) {
  return at.tensor == 0 && at.pipeline == mesh.pipeline - 1;
}

}  // namespace

Result<std::vector<comm::Communicator*>> norm_groups(const RankGroups& groups, const Mesh& mesh,
                                                     bool stages_update_apart) {
  std::vector<comm::Communicator*> found;
  const int64_t stages = stages_update_apart ? 1 : mesh.pipeline;
  for (const Axis axis : {Axis::kTensor, Axis::kPipeline}) {
    if ((axis == Axis::kTensor ? mesh.tensor : stages) == 1) continue;
    TRY_ASSIGN(comm::Communicator* const group, groups.of(axis));
    found.push_back(group);
  }
  return found;
}

Status add_up_squares(std::span<comm::Communicator* const> groups, const DeviceSquares& mine,
                      std::vector<comm::Work>& pending) {
  const bool is_on_host = mine.device.type == kernels::DeviceType::kCpu;
  for (comm::Communicator* const group : groups) {
    if (group->size() == 1) continue;
    comm::Work work = group->start_all_reduce({.data = mine.sum,
                                               .count = kernels::kSquareWords,
                                               .type = comm::DataType::kI64,
                                               .device = mine.device,
                                               .stream = mine.stream.handle()},
                                              comm::ReduceOp::kSum);
    if (is_on_host || !group->device_traits().is_stream_ordered) {
      TRY(work.wait());
    } else {
      pending.push_back(std::move(work));
    }
  }
  return {};
}

WorldTotals totals_of(std::span<const RankTotals> ranks, const Mesh& mesh) {
  WorldTotals totals;
  double loss_sum = 0, right = 0, top_right = 0;
  int64_t counted = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    totals.stop = totals.stop || ranks[rank].stop != 0;
    totals.busy = totals.busy || ranks[rank].busy != 0;
    const MeshCoordinates at = coordinates(mesh, static_cast<int64_t>(rank));
    if (at.data == 0 && at.tensor == 0) totals.squares += ranks[rank].squares;
    if (!counts(mesh, at)) continue;
    loss_sum += ranks[rank].loss_sum;
    right += ranks[rank].right;
    top_right += ranks[rank].top_right;
    counted += ranks[rank].counted;
  }
  totals.counted = counted;
  if (counted == 0) return totals;
  totals.loss = loss_sum / static_cast<double>(counted);
  totals.accuracy = right / static_cast<double>(counted);
  totals.top5_accuracy = top_right / static_cast<double>(counted);
  return totals;
}

Result<WorldTotals> add_up(comm::Communicator& world, const Mesh& mesh, const RankTotals& mine) {
  TRY_ASSIGN(const std::vector<RankTotals> ranks, world.all_gather_value(mine));
  return totals_of(ranks, mesh);
}

}  // namespace lockstep::parallel
