#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/rank_groups.h"
#include "common/base/result.h"
#include "common/layout/mesh.h"
#include "kernels/device/device.h"
#include "kernels/ops/squared_norm.h"

namespace lockstep::parallel {

// A rank's part of what a step or an evaluation adds up.
struct RankTotals {
  double loss_sum = 0;   // over its terms of the loss
  int64_t counted = 0;   // terms
  double right = 0;      // right answers of an evaluation
  double top_right = 0;  // those among the most likely ones
  int64_t stop = 0;      // 1: the rank was asked to stop
  int64_t busy = 0;      // 1: the rank is still writing its part of a checkpoint
  double squares = 0;    // of gradients; 0 if they are those that the first stage counts
};

struct WorldTotals {
  double loss = 0;           // mean over all terms; 0 if there are none
  int64_t counted = 0;       // terms
  double accuracy = 0;       // right answers / all terms; 0 if there are none
  double top5_accuracy = 0;  // those among the most likely ones / all terms, likewise
  bool stop = false;         // some rank was asked to stop
  bool busy = false;         // some rank is still writing its part of a checkpoint
  double squares = 0;        // of all gradients
};

// A sum of squares in the memory of a rank's device.
struct DeviceSquares {
  kernels::SquareSum* sum = nullptr;
  kernels::Device device;
  kernels::Stream& stream;
};

// Returns the groups over which the squares of gradients add up before an update, if ranks along
// the data axis have equal sums: those of the other axes, without the pipeline's if its stages
// update at different times. None of a group of one.
Result<std::vector<comm::Communicator*>> norm_groups(const RankGroups& groups, const Mesh& mesh,
                                                     bool stages_update_apart);

// Adds up over each of the groups in turn, in place and in stream order, so that every rank gets
// the same bits. Results of operations that a stream orders are added to `pending`.
Status add_up_squares(std::span<comm::Communicator* const> groups, const DeviceSquares& mine,
                      std::vector<comm::Work>& pending);

// Adds up the parts of all ranks of the mesh, in the order of ranks, so that every rank gets the
// same bits. Each term counts once: only the last stage of a pipeline has losses, and the ranks
// along the tensor axis repeat them. Squares are those of a stage's first rank.
WorldTotals totals_of(std::span<const RankTotals> ranks, const Mesh& mesh);
// Gathers the parts of all ranks and adds them up. Errors are the communicator's.
Result<WorldTotals> add_up(comm::Communicator& world, const Mesh& mesh, const RankTotals& mine);

}  // namespace lockstep::parallel
