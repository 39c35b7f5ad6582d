#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/world_totals.h"
#include "common/base/result.h"
#include "common/layout/mesh.h"

namespace lockstep::parallel {

// Adds up the totals of steps over all ranks (add_up()). With a delay it does not wait for ranks
// that end a step later than this one: it returns the totals of an earlier step. One thread.
class LateTotals {
 public:
  // The totals of a step, the same bits on every rank.
  struct Step {
    int64_t step = 0;
    WorldTotals totals;
  };
  // With `delay`, steps overlap on some ranks, and `group` has all ranks and serves this alone.
  // The group outlives it.
  LateTotals(comm::Communicator& group, const Mesh& mesh, int64_t delay)
      : group_(group), mesh_(mesh), delay_(delay) {}

  // Starts to add up this step's. Returns those of `delay` steps before; nothing if that step came
  // before the last finish().
  Result<std::optional<Step>> add(int64_t step, const RankTotals& mine);
  // Waits for all that were started. Returns the last one's, or `last` if there are none. The
  // result stops if one of them does.
  Result<std::optional<Step>> finish(std::optional<Step> last);

 private:
  struct Pending {
    int64_t step = 0;
    RankTotals mine;
    std::vector<RankTotals> ranks;
    comm::Work work;
  };
  Result<Step> take_oldest();

  comm::Communicator& group_;
  Mesh mesh_;
  int64_t delay_;
  std::deque<std::unique_ptr<Pending>> pending_;  // in the order of steps
};

}  // namespace lockstep::parallel
