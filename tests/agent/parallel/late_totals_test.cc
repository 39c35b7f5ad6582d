#include "agent/parallel/late_totals.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"

namespace lockstep::parallel {
namespace {

// Rank r learns totals r steps later, without waiting for ranks that are behind.
TEST(LateTotals, AreThoseOfAnEarlierStepWhereOthersEndLater) {
  const Mesh mesh{.pipeline = 3};
  auto world = comm::make_thread_world(3).value();
  std::vector<std::vector<int64_t>> known(world.size());
  std::vector<std::vector<double>> losses(world.size());
  {
    std::vector<std::jthread> ranks;
    for (auto& communicator : world) {
      ranks.emplace_back([&, group = communicator.get()] {
        const auto at = static_cast<size_t>(group->rank());
        LateTotals totals(*group, mesh, group->rank());
        std::optional<LateTotals::Step> last;
        for (int64_t step = 1; step <= 5; ++step) {
          const auto added = totals.add(step, {.loss_sum = static_cast<double>(step),
                                               .counted = 1,
                                               .stop = step == 4 && at == 1 ? 1 : 0});
          ASSERT_TRUE(added.ok()) << added.error().message;
          last = *added;
          known[at].push_back(last ? last->step : 0);
          if (last) losses[at].push_back(last->totals.loss);
        }
        const auto end = totals.finish(last);
        ASSERT_TRUE(end.ok() && end->has_value());
        EXPECT_EQ((*end)->step, 5);
        EXPECT_EQ((*end)->totals.loss, 5);
        EXPECT_EQ((*end)->totals.stop, at > 0) << "the stop of step 4 was known to rank 0 before";
      });
    }
  }
  EXPECT_EQ(known[0], (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(known[1], (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(known[2], (std::vector<int64_t>{0, 0, 1, 2, 3}));
  EXPECT_EQ(losses[2], (std::vector<double>{1, 2, 3}));
}

}  // namespace
}  // namespace lockstep::parallel
