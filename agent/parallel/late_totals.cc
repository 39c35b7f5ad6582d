#include "agent/parallel/late_totals.h"

namespace lockstep::parallel {

Result<std::optional<LateTotals::Step>> LateTotals::add(int64_t step, const RankTotals& mine) {
  if (delay_ == 0) {
    TRY_ASSIGN(const WorldTotals totals, add_up(group_, mesh_, mine));
    return std::optional(Step{step, totals});
  }
  auto pending = std::make_unique<Pending>();
  pending->step = step;
  pending->mine = mine;
  pending->ranks.resize(static_cast<size_t>(group_.size()));
  pending->work = group_.start_all_gather({.data = pending->ranks.data(),
                                           .count = sizeof(RankTotals),
                                           .type = comm::DataType::kU8,
                                           .input = &pending->mine});
  pending_.push_back(std::move(pending));
  if (std::ssize(pending_) <= delay_) return std::optional<Step>();
  TRY_ASSIGN(const Step oldest, take_oldest());
  return std::optional(oldest);
}

Result<LateTotals::Step> LateTotals::take_oldest() {
  const std::unique_ptr<Pending> oldest = std::move(pending_.front());
  pending_.pop_front();
  TRY(oldest->work.wait());
  return Step{oldest->step, totals_of(oldest->ranks, mesh_)};
}

Result<std::optional<LateTotals::Step>> LateTotals::finish(std::optional<Step> last) {
  while (!pending_.empty()) {
    TRY_ASSIGN(Step next, take_oldest());
    next.totals.stop = next.totals.stop || (last && last->totals.stop);
    last = next;
  }
  return last;
}

}  // namespace lockstep::parallel
