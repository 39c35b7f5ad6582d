#include "agent/parallel/rank_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/agent/comm/gpu/device_world.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::parallel {
namespace {

using test::make_world;
using test::on_all;
using test::Transport;
using test::World;

// Two nodes of four ranks: a mesh of 2 x 2 x 2, and user groups, one of them not in rank order.
WorldAssignment assignment() {
  TrainingJobSpec spec;
  spec.nodes = 2;
  spec.processesPerNode = 4;
  spec.parallelism = {.tensor = 2, .pipeline = 2};
  spec.processGroups = {{.name = "even", .ranks = "0::2"}, {.name = "ends", .ranks = "7,0,3"}};
  WorldInput input{.job_uid = "uid", .round = 1, .members = {}};
  for (int64_t i = 0; i < 2; ++i) {
    input.members.push_back({.index = i, .incarnation = 1, .host = "10.0.0.1", .port = 29500});
  }
  auto world = make_world(spec, input);
  EXPECT_TRUE(world.ok()) << world.error().message;
  return std::move(world).value();
}

// A pending operation in a group.
struct Sum {
  const WorldGroup* of = nullptr;
  std::vector<int64_t> values;
  comm::Work work;
};

int64_t sum_of(const WorldGroup& group) {
  return std::accumulate(group.ranks.begin(), group.ranks.end(), int64_t{0});
}

class OnHosts : public testing::TestWithParam<Transport> {};

// Sums in every group that contains this rank; all operations are pending at the same time.
void expect_sums_of_all_groups(comm::Communicator& comm, const WorldAssignment& assigned,
                               int first) {
  auto groups = RankGroups::create(comm, assigned.groups);
  ASSERT_TRUE(groups.ok()) << groups.error().message;
  std::vector<Sum> sums;
  for (const WorldGroup& group : assigned.groups) {
    const int64_t place = group_rank(group, comm.rank());
    const auto found = groups->find(group.name);
    ASSERT_EQ(found.ok(), place >= 0) << group.name;
    if (place < 0) continue;
    EXPECT_EQ((*found)->rank(), place) << group.name;
    EXPECT_EQ((*found)->size(), static_cast<int>(group.ranks.size())) << group.name;
    sums.push_back({.of = &group, .values = std::vector<int64_t>(50'000, comm.rank()), .work = {}});
  }
  std::rotate(sums.begin(), sums.begin() + first % static_cast<int>(sums.size()), sums.end());
  for (Sum& sum : sums) {
    sum.work = (*groups->find(sum.of->name))
                   ->start_all_reduce({.data = sum.values.data(),
                                       .count = static_cast<int64_t>(sum.values.size()),
                                       .type = comm::DataType::kI64},
                                      comm::ReduceOp::kSum);
  }
  for (Sum& sum : sums) {
    const Status status = sum.work.wait();
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(sum.values, std::vector<int64_t>(sum.values.size(), sum_of(*sum.of)))
        << sum.of->name << " on rank " << comm.rank();
  }
}

TEST_P(OnHosts, EveryGroupOfTheAssignmentAddsUpItsOwnRanksAllAtOnce) {
  const WorldAssignment assigned = assignment();
  ASSERT_EQ(assigned.groups.size(), 14U);
  World world = make_world(GetParam(), 8);
  // Each rank begins with a different group.
  on_all(world,
         [&](comm::Communicator& comm) { expect_sums_of_all_groups(comm, assigned, comm.rank()); });
}

// Both are fakes. NCCL groups must first be used in the same order on all ranks.
TEST(RankGroups, OnGpusEveryGroupAddsUpItsOwnRanks) {
  const WorldAssignment assigned = assignment();
  for (const bool has_nccl : {false, true}) {
    test::DeviceWorld world({.size = 8, .has_nccl = has_nccl});
    on_all(world.world(), [&](comm::Communicator& comm) {
      expect_sums_of_all_groups(comm, assigned, has_nccl ? 0 : comm.rank());
    });
  }
}

TEST_P(OnHosts, TheGroupOfAnAxisIsTheOneThatThisRankIsIn) {
  const WorldAssignment assigned = assignment();
  World world = make_world(GetParam(), 8);
  on_all(world, [&](comm::Communicator& comm) {
    auto groups = RankGroups::create(comm, assigned.groups);
    ASSERT_TRUE(groups.ok());
    const RankCoordinates own = coordinates(assigned, comm.rank());
    const auto ranks_along = [&](Axis axis) {
      const auto group = groups->of(axis);
      EXPECT_TRUE(group.ok());
      const auto ranks = (*group)->all_gather_value(comm.rank());
      EXPECT_TRUE(ranks.ok());
      return *ranks;
    };
    const int first_of_data = static_cast<int>(4 * own.pipeline + own.tensor);
    EXPECT_EQ(ranks_along(Axis::kData), (std::vector<int>{first_of_data, first_of_data + 2}));
    const int first_of_tensor = comm.rank() / 2 * 2;
    EXPECT_EQ(ranks_along(Axis::kTensor), (std::vector<int>{first_of_tensor, first_of_tensor + 1}));
    EXPECT_EQ(ranks_along(Axis::kPipeline),
              (std::vector<int>{comm.rank() % 4, comm.rank() % 4 + 4}));
  });
}

INSTANTIATE_TEST_SUITE_P(RankGroups, OnHosts,
                         testing::Values(Transport::kThreads, Transport::kMixed),
                         [](const auto& info) { return name_of(info.param); });

// Only rank 3 asks. It gets an error without waiting for other ranks.
TEST(RankGroups, ARankOutsideAGroupIsToldSoByItsName) {
  World world = make_world(Transport::kThreads, 8);
  const auto groups = RankGroups::create(*world[3], assignment().groups);
  ASSERT_TRUE(groups.ok());
  const auto outside = groups->find("even");
  ASSERT_FALSE(outside.ok());
  EXPECT_EQ(outside.error().code, Code::kInvalid);
  EXPECT_EQ(outside.error().message,
            "[groups] rank 3 is not in the group 'even' of ranks 0, 2, 4, 6");
  const auto missing = groups->find("odd");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_EQ(missing.error().message, "[groups] the world has no group 'odd'");
}

TEST(RankGroups, RefusesGroupsThatAreNotOfThisWorld) {
  World world = make_world(Transport::kThreads, 2);
  const auto refused = [&](std::vector<WorldGroup> groups) {
    const auto made = RankGroups::create(*world[0], groups);
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_EQ(refused({{.name = "all", .ranks = {0, 2}}}),
            "[groups] group 'all': rank 2 is out of range (2 ranks)");
  EXPECT_EQ(refused({{.name = "one", .ranks = {0}}, {.name = "one", .ranks = {1}}}),
            "[groups] group 'one': duplicate name");
  EXPECT_NE(refused({{.name = "all", .ranks = {0, 1, 0}}}), "");
  const auto alone = RankGroups::create(*world[0], std::vector<WorldGroup>{});
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->of(Axis::kData).error().message,
            "[groups] the world has no group for axis data");
}

}  // namespace
}  // namespace lockstep::parallel
