// Several ranks, each on an emulated CUDA device, compared with one rank on the CPU with the same
// global batch.
#include <gtest/gtest.h>

#include "tests/agent/train/device_ranks.h"
#include "tests/support/emulated_cuda/devices.h"
#include "tests/support/emulated_cuda/memory_use.h"

namespace lockstep::train {
namespace {

constexpr int64_t kStepsOfRanks = 3;

Trained alone_on_the_cpu(TrainingSetup setup) {
  setup.accumulation *= setup.ranks;
  setup.ranks = 1;
  setup.precision = kernels::Precision::kF32;
  return train_ranks(setup, GradientPath::kCpu, kStepsOfRanks).front();
}

struct Way {
  const char* name;
  GradientPath path;
};

std::vector<ShardingOptions> shardings_of_two() {
  std::vector<ShardingOptions> all{{}};
  for (const Sharding sharding :
       {Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    all.push_back({.sharding = sharding, .ranks = 2});
    all.push_back({.sharding = sharding, .ranks = 1});  // all ranks are replicas
  }
  return all;
}

class EmulatedRanks : public testing::TestWithParam<Way> {};

TEST_P(EmulatedRanks, TakeTheStepsOfOneRankOnTheCpu) {
  for (const ModelDesign& design : {ModelDesign(kConfig), ModelDesign(kClassifier)}) {
    for (const int64_t ranks : {2, 3}) {
      const TrainingSetup setup{.device = {}, .design = design, .accumulation = 1, .ranks = ranks};
      const Trained expected = alone_on_the_cpu(setup);
      for (const Trained& rank : train_ranks(setup, GetParam().path, kStepsOfRanks)) {
        expect_near(rank.losses, expected.losses, 1e-5);
        expect_near(rank.norms, expected.norms, 1e-4);
      }
    }
  }
}

// Through host memory: the arenas, and at most the plan's buffers of collectives.
TEST_P(EmulatedRanks, TakeThePageLockedMemoryOfTheirPlan) {
  const bool has_nccl = GetParam().path == GradientPath::kNccl;
  for (const ShardingOptions& sharding : shardings_of_two()) {
    SCOPED_TRACE(std::string(sharding_name(sharding.sharding)) + " by " +
                 std::to_string(sharding.ranks));
    emulated_cuda::reset_memory_use();
    const uint64_t before = emulated_cuda::memory_use().pinned_bytes;
    uint64_t arena = 0, collectives = 0;
    on_device_ranks(2, GetParam().path, [&](comm::Communicator& world, kernels::Device device) {
      Training training({.device = device, .ranks = 2, .sharding = sharding}, world);
      training.train(kFewSteps);
      if (world.rank() != 0) return;
      arena = training.model().memory().pinned.bytes;
      for (const parallel::MemoryPart& part : parallel::collectives_memory(training.options(), 1)) {
        if (part.place == parallel::MemoryPlace::kPinned) collectives += part.bytes;
      }
    });
    const uint64_t taken = emulated_cuda::memory_use().pinned_bytes_max - before;
    if (has_nccl) collectives = 0;
    EXPECT_GE(taken, 2 * arena + (collectives > 0 ? 1 : 0));
    EXPECT_LE(taken, 2 * (arena + collectives));
  }
}

TEST_P(EmulatedRanks, OfALlamaInBf16StayCloseToFp32) {
  const TrainingSetup setup{.device = {},
                            .precision = kernels::Precision::kBf16,
                            .recompute = Recompute::kOps,
                            .design = kLlama,
                            .accumulation = 1,
                            .ranks = 2};
  const Trained expected = alone_on_the_cpu(setup);
  for (const Trained& rank : train_ranks(setup, GetParam().path, kStepsOfRanks)) {
    expect_near(rank.losses, expected.losses, 1e-2);
    expect_near(rank.norms, expected.norms, 5e-2);
  }
}

// The order of streams and the number of threads do not matter.
TEST_P(EmulatedRanks, AreTheSameBitForBitInWhateverOrderStreamsRun) {
  const TrainingSetup setup{.device = {}, .precision = kernels::Precision::kBf16, .ranks = 2};
  Trained first;
  for (const uint64_t seed : {1, 1, 2, 3, 4, 5, 6}) {
    emulated_cuda::set_seed(seed);
    const std::vector<Trained> ranks = train_ranks(setup, GetParam().path, 2);
    EXPECT_TRUE(ranks[0] == ranks[1]) << "seed " << seed;
    if (first.losses.empty()) first = ranks[0];
    EXPECT_EQ(ranks[0].losses, first.losses) << "seed " << seed;
    EXPECT_TRUE(ranks[0].state == first.state) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, EmulatedRanks,
                         testing::Values(Way{"ByHostMemory", GradientPath::kHostMemory},
                                         Way{"ByNccl", GradientPath::kNccl}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep::train
