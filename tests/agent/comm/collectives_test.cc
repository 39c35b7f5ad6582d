#include "agent/comm/collectives.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "agent/comm/comm_limits.h"
#include "common/base/random.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using test::make_world;
using test::on_all;
using test::on_ranks;
using test::Transport;
using test::World;

constexpr int64_t kLargest = 300'007;

// Returns a different window of one table for every rank.
std::vector<float> random_values(int rank, int64_t count) {
  static const std::vector<float> table = [] {
    Random random(42);
    std::vector<float> values(kLargest + 8 * 1000);
    for (float& value : values) value = random.normal();
    return values;
  }();
  const auto begin = table.begin() + rank * 1000;
  return {begin, begin + count};
}

CommBuffer f32(std::vector<float>& values) {
  return {
      .data = values.data(), .count = static_cast<int64_t>(values.size()), .type = DataType::kF32};
}

// Returns the values of all ranks after one all_reduce of random_values.
std::vector<std::vector<float>> reduced(World& world, int64_t count, ReduceOp op) {
  std::vector<std::vector<float>> results(world.size());
  on_all(world, [&](Communicator& comm) {
    auto values = random_values(comm.rank(), count);
    const Status status = comm.all_reduce(f32(values), op);
    ASSERT_TRUE(status.ok()) << status.error().message;
    results[static_cast<size_t>(comm.rank())] = std::move(values);
  });
  return results;
}

std::vector<int64_t> odd_sizes(int64_t ranks) {
  return {0, 1, ranks - 1, ranks, 13, 1009, 8192 / ranks + 1, 30011, kLargest};
}

struct Shape {
  Transport transport;
  int size;
};

class OnEveryTransport : public testing::TestWithParam<Shape> {
 protected:
  World world_ = make_world(GetParam().transport, GetParam().size);
};

TEST_P(OnEveryTransport, AllReduceSumsWhatEveryRankGave) {
  for (const int64_t count : odd_sizes(GetParam().size)) {
    const auto results = reduced(world_, count, ReduceOp::kSum);
    std::vector<double> expected(static_cast<size_t>(count));
    for (int rank = 0; rank < GetParam().size; ++rank) {
      const auto values = random_values(rank, count);
      for (size_t i = 0; i < values.size(); ++i) expected[i] += double{values[i]};
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(double{results[0][i]}, expected[i], 1e-5) << count << " elements, at " << i;
    }
  }
}

TEST_P(OnEveryTransport, AllRanksAndAllRunsHaveTheSameBits) {
  World second = make_world(GetParam().transport, GetParam().size);
  for (const int64_t count : odd_sizes(GetParam().size)) {
    const auto first_run = reduced(world_, count, ReduceOp::kAvg);
    const auto second_run = reduced(second, count, ReduceOp::kAvg);
    for (const auto& values : first_run) ASSERT_EQ(values, first_run[0]) << count;
    ASSERT_EQ(second_run, first_run) << count;
  }
}

TEST_P(OnEveryTransport, BroadcastGivesEveryRankTheRootsBuffer) {
  for (const int64_t count : odd_sizes(GetParam().size)) {
    for (int root = 0; root < GetParam().size; ++root) {
      on_all(world_, [&](Communicator& comm) {
        auto values = random_values(comm.rank(), count);
        ASSERT_TRUE(comm.broadcast(f32(values), root).ok());
        ASSERT_EQ(values, random_values(root, count));
      });
    }
  }
}

TEST_P(OnEveryTransport, AllGatherBringsEveryRanksValueInOrder) {
  struct Report {
    double loss;
    int32_t threads;
    uint8_t bf16;
  };
  on_all(world_, [&](Communicator& comm) {
    const auto all = comm.all_gather_value(
        Report{.loss = 0.5 * comm.rank(), .threads = 3 + comm.rank(), .bf16 = 1});
    ASSERT_TRUE(all.ok()) << all.error().message;
    ASSERT_EQ(static_cast<int>(all->size()), comm.size());
    for (size_t rank = 0; rank < all->size(); ++rank) {
      EXPECT_EQ((*all)[rank].loss, 0.5 * static_cast<double>(rank));
      EXPECT_EQ((*all)[rank].threads, 3 + static_cast<int>(rank));
    }
  });
}

TEST_P(OnEveryTransport, NobodyPassesABarrierBeforeEveryRankIsThere) {
  std::atomic<int> arrived{0};
  on_all(world_, [&](Communicator& comm) {
    for (int turn = 1; turn <= 50; ++turn) {
      ++arrived;
      ASSERT_TRUE(comm.barrier().ok());
      ASSERT_GE(arrived.load(), turn * comm.size());
    }
  });
}

TEST_P(OnEveryTransport, StartedOperationsRunInOrderWhileTheCallerGoesOn) {
  constexpr int64_t kCount = 100'003;
  on_all(world_, [&](Communicator& comm) {
    std::vector<std::vector<float>> buckets;
    std::vector<Work> works;
    for (int bucket = 0; bucket < 5; ++bucket) {
      buckets.emplace_back(kCount, static_cast<float>(bucket + comm.rank()));
    }
    for (auto& bucket : buckets)
      works.push_back(comm.start_all_reduce(f32(bucket), ReduceOp::kSum));
    const auto gathered = comm.all_gather_value(comm.rank());  // queued after the buckets
    ASSERT_TRUE(gathered.ok());
    const int ranks = comm.size();
    for (int bucket = 0; bucket < 5; ++bucket) {
      const auto i = static_cast<size_t>(bucket);
      ASSERT_TRUE(works[i].test());
      ASSERT_TRUE(works[i].wait().ok());
      const auto sum = static_cast<float>(bucket * ranks + ranks * (ranks - 1) / 2);
      ASSERT_EQ(buckets[i].front(), sum);
      ASSERT_EQ(buckets[i].back(), sum);
    }
    EXPECT_EQ(comm.counts().entered, 6u);
    EXPECT_EQ(comm.counts().completed, 6u);
  });
}

TEST_P(OnEveryTransport, SubGroupsHaveTheirOwnRanksAndWorkSideBySide) {
  on_all(world_, [&](Communicator& comm) {
    std::vector<int> mine;  // the even ranks or the odd ones, in reverse
    for (int rank = comm.size() - 1; rank >= 0; --rank) {
      if (rank % 2 == comm.rank() % 2) mine.push_back(rank);
    }
    auto group = comm.sub_group(mine);
    ASSERT_TRUE(group.ok());
    EXPECT_EQ(mine[static_cast<size_t>((*group)->rank())], comm.rank());
    std::vector<float> values(20'001, static_cast<float>(comm.rank()));
    ASSERT_TRUE((*group)->all_reduce(f32(values), ReduceOp::kSum).ok());
    const auto sum = static_cast<float>(std::accumulate(mine.begin(), mine.end(), 0));
    EXPECT_EQ(values.front(), sum);
    EXPECT_EQ(values.back(), sum);
    ASSERT_TRUE(comm.barrier().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(
    Comm, OnEveryTransport,
    testing::Values(Shape{Transport::kThreads, 1}, Shape{Transport::kThreads, 2},
                    Shape{Transport::kThreads, 3}, Shape{Transport::kThreads, 4},
                    Shape{Transport::kThreads, 5}, Shape{Transport::kThreads, 7},
                    Shape{Transport::kThreads, 8}, Shape{Transport::kShared, 2},
                    Shape{Transport::kShared, 3}, Shape{Transport::kTcp, 1},
                    Shape{Transport::kTcp, 2}, Shape{Transport::kTcp, 3}, Shape{Transport::kTcp, 4},
                    Shape{Transport::kTcp, 8}, Shape{Transport::kMixed, 4},
                    Shape{Transport::kMixed, 5}, Shape{Transport::kMixed, 6}),
    [](const testing::TestParamInfo<Shape>& info) {
      return name_of(info.param.transport) + std::to_string(info.param.size);
    });

TEST(AllGather, IsRightWhereBlocksGoPastTheCaches) {
  constexpr int64_t kCount =
      static_cast<int64_t>(CommLimits{}.past_cache_bytes / sizeof(int32_t)) + 13;
  World world = make_world(Transport::kThreads, 2);
  on_all(world, [](Communicator& comm) {
    std::vector<int32_t> mine(kCount);
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<int32_t>(i) * 3 + comm.rank();
    std::vector<int32_t> all(2 * kCount + 1, -1);
    ASSERT_TRUE(
        comm.all_gather(
                {.data = all.data(), .count = kCount, .type = DataType::kI32, .input = mine.data()})
            .ok());
    for (size_t i = 0; i < 2 * mine.size(); ++i) {
      const size_t rank = i / mine.size();
      const auto wanted = static_cast<int32_t>(i - rank * mine.size()) * 3 + static_cast<int>(rank);
      ASSERT_EQ(all[i], wanted) << i;
    }
    EXPECT_EQ(all.back(), -1);
  });
}

TEST(AllReduce, TheRingSendsTwoNthsOfTheBufferForEachOtherRank) {
  constexpr int64_t kCount = 840 * 300;  // divisible by every size up to 8
  for (const Transport transport : {Transport::kThreads, Transport::kTcp}) {
    for (const int size : {2, 3, 4, 5, 8}) {
      World world = make_world(transport, size);
      on_all(world, [&](Communicator& comm) {
        auto values = random_values(comm.rank(), kCount);
        const Traffic before = comm.traffic();
        ASSERT_TRUE(comm.all_reduce(f32(values), ReduceOp::kSum).ok());
        const auto expected =
            static_cast<uint64_t>(2 * (size - 1) * kCount * int64_t{sizeof(float)} / size);
        EXPECT_EQ(comm.traffic().bytes_sent - before.bytes_sent, expected);
        EXPECT_EQ(comm.traffic().bytes_received - before.bytes_received, expected);
      });
    }
  }
}

TEST(AllReduce, TheOrderOfSumsIsTheRings) {
  constexpr int kSize = 5;
  constexpr int64_t kCount = 50'021;
  World world = make_world(Transport::kTcp, kSize);
  const auto results = reduced(world, kCount, ReduceOp::kSum);
  std::vector<std::vector<float>> given;
  for (int rank = 0; rank < kSize; ++rank) given.push_back(random_values(rank, kCount));
  for (int segment = 0; segment < kSize; ++segment) {
    const Segment range = ring_segment(kCount, kSize, segment);
    for (auto i = static_cast<size_t>(range.begin); i < static_cast<size_t>(range.end); ++i) {
      float sum = given[static_cast<size_t>(segment)][i];
      for (int hop = 1; hop < kSize; ++hop) {
        sum += given[static_cast<size_t>((segment + hop) % kSize)][i];
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(results[0][i]), std::bit_cast<uint32_t>(sum));
    }
  }
}

template <class T>
void expect_reduction(World& world, DataType type, ReduceOp op, T (*value)(int), T expected) {
  for (const int64_t count : {int64_t{3}, int64_t{70'001}}) {
    on_all(world, [&](Communicator& comm) {
      std::vector<T> values(static_cast<size_t>(count), value(comm.rank()));
      const CommBuffer buffer{.data = values.data(), .count = count, .type = type};
      ASSERT_TRUE(comm.all_reduce(buffer, op).ok());
      for (const T& got : values) ASSERT_EQ(got, expected);
    });
  }
}

TEST(AllReduce, ServesEveryTypeAndReduction) {
  World world = make_world(Transport::kThreads, 4);
  expect_reduction<double>(
      world, DataType::kF64, ReduceOp::kAvg, [](int r) { return r * 1.0; }, 1.5);
  expect_reduction<double>(
      world, DataType::kF64, ReduceOp::kMin, [](int r) { return -r * 1.0; }, -3);
  expect_reduction<float>(
      world, DataType::kF32, ReduceOp::kMax, [](int r) { return float(r); }, 3.f);
  expect_reduction<int32_t>(
      world, DataType::kI32, ReduceOp::kSum,
      [](int) { return std::numeric_limits<int32_t>::max(); }, -4);
  expect_reduction<int64_t>(
      world, DataType::kI64, ReduceOp::kMin, [](int r) { return int64_t{r} << 40; }, 0);
  expect_reduction<uint8_t>(
      world, DataType::kU8, ReduceOp::kSum, [](int) { return uint8_t{100}; }, uint8_t{144});
  const auto bf16 = [](float value) {
    return kernels::Bf16{static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16)};
  };
  expect_reduction<kernels::Bf16>(
      world, DataType::kBf16, ReduceOp::kSum,
      [](int r) {
        return kernels::Bf16{
            static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(r)) >> 16)};
      },
      bf16(6.f));
}

TEST(AllReduce, BringsANanToEveryRank) {
  World world = make_world(Transport::kThreads, 3);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
    on_all(world, [&](Communicator& comm) {
      std::vector<float> values(1, comm.rank() == 1 ? std::nanf("") : 1.f);
      ASSERT_TRUE(comm.all_reduce(f32(values), op).ok());
      EXPECT_TRUE(std::isnan(values[0]));
    });
  }
}

TEST(Segments, PartitionTheBuffer) {
  for (const int64_t count : {0, 1, 6, 7, 8, 1009}) {
    int64_t next = 0;
    for (int index = 0; index < 7; ++index) {
      const Segment segment = ring_segment(count, 7, index);
      EXPECT_EQ(segment.begin, next);
      EXPECT_LE(segment.end - segment.begin, count / 7 + 1);
      next = segment.end;
    }
    EXPECT_EQ(next, count);
  }
}

TEST(Calls, WrongOnesAreRefusedAndTheCommunicatorStaysUsable) {
  World world = make_world(Transport::kThreads, 2);
  Communicator& comm = *world[0];
  std::vector<float> values(4);
  const auto refused = [](const Status& status) {
    return !status.ok() && status.error().code == Code::kInvalid;
  };
  EXPECT_TRUE(refused(comm.all_reduce({.data = nullptr, .count = 4}, ReduceOp::kSum)));
  EXPECT_TRUE(refused(comm.all_reduce({.data = values.data(), .count = -1}, ReduceOp::kSum)));
  EXPECT_TRUE(refused(comm.all_reduce(
      {.data = values.data(), .count = 4, .device = {kernels::DeviceType::kCuda, 0}},
      ReduceOp::kSum)));
  auto* odd = reinterpret_cast<std::byte*>(values.data()) + 1;
  EXPECT_TRUE(refused(comm.start_all_reduce({.data = odd, .count = 2}, ReduceOp::kSum).wait()));
  EXPECT_TRUE(refused(comm.broadcast(f32(values), 2)));
  EXPECT_TRUE(refused(comm.start_broadcast(f32(values), -1).wait()));
  EXPECT_TRUE(refused(comm.all_gather(std::as_bytes(std::span(values)), {})));
  EXPECT_FALSE(comm.sub_group({1}).ok());
  EXPECT_EQ(comm.sub_group({1}).error().message, "[comm] rank 0 is not in the sub-group {1}");
  EXPECT_FALSE(comm.sub_group({0, 2}).ok());
  EXPECT_FALSE(comm.sub_group({0, 0}).ok());
  on_all(world, [](Communicator& rank) { EXPECT_TRUE(rank.barrier().ok()); });
}

TEST(Communicator, IsNoFaultWhereItIsDroppedRightAfterItsLastOperation) {
  for (int turn = 0; turn < 100; ++turn) {
    World world = make_world(Transport::kThreads, 3);
    on_ranks(3, [&](int rank) {
      auto comm = std::move(world[static_cast<size_t>(rank)]);
      std::vector<float> values(20'000, 1.f);
      const auto count = static_cast<int64_t>(values.size());
      Work work = comm->start_broadcast({.data = values.data(), .count = count}, 0);
      const Status status = work.wait();
      ASSERT_TRUE(status.ok()) << "turn " << turn << ": " << status.error().message;
    });
    if (HasFailure()) return;
  }
}

TEST(Communicator, SaysWhichTransportServesWhom) {
  World world = make_world(Transport::kMixed, 4);
  EXPECT_EQ(world[0]->describe(), "rank 0 of 4: shared memory 1; tcp 2-3");
  EXPECT_EQ(world[3]->describe(), "rank 3 of 4: shared memory 2; tcp 0-1");
  World alone = make_world(Transport::kTcp, 1);
  EXPECT_EQ(alone[0]->describe(), "rank 0 of 1: alone");
}

}  // namespace
}  // namespace lockstep::comm
