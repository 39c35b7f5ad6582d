// Ranks that divide a model, on CUDA devices, emulated or real, compared with one rank on the CPU
// with the same global batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/layout/sharding.h"
#include "tests/agent/train/device_ranks.h"

namespace lockstep::train {
namespace {

// Its stages have more blocks than the memory of gathered parameters.
constexpr ModelConfig kDeep{6, 32, 2, kContext, 64};

struct Case {
  const char* name;
  GradientPath path;
  int64_t pipeline;
  int64_t data;
  int64_t tensor;
  int64_t virtual_stages = 1;
  PipelineKind schedule = PipelineKind::kOneForwardOneBackward;
};

// With a layer for each part of the pipeline.
ModelConfig with_layers(const Case& c, ModelConfig config) {
  config.layers = std::max(config.layers, c.pipeline * c.virtual_stages);
  return config;
}

TrainingSetup setup_of(const Case& c, const ModelDesign& design, Sharding sharding) {
  TrainingSetup setup{.device = {},
                      .design = design,
                      .accumulation = 4 / c.data,
                      .ranks = c.pipeline * c.data * c.tensor,
                      .pipeline = c.pipeline,
                      .tensor = c.tensor,
                      .schedule = c.schedule,
                      .virtual_stages = c.virtual_stages};
  setup.sharding = {.sharding = sharding, .ranks = sharding == Sharding::kNone ? 1 : c.data};
  return setup;
}

Trained alone_on_the_cpu(const ModelDesign& design) {
  return train_ranks({.device = {}, .design = design, .accumulation = 4}, GradientPath::kCpu,
                     kFewSteps)
      .front();
}

class DeviceMeshes : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    if (!can_exchange(c.path, c.pipeline * c.data * c.tensor)) {
      GTEST_SKIP() << "NCCL takes no two ranks on one GPU";
    }
  }
};

TEST_P(DeviceMeshes, TakeTheStepsOfOneRankOnTheCpu) {
  for (const ModelConfig& config : {kConfig, kLlama, kBert}) {
    const ModelDesign design = with_layers(GetParam(), config);
    const Trained expected = alone_on_the_cpu(design);
    for (const Sharding sharding : {Sharding::kNone, Sharding::kParameters}) {
      if (GetParam().schedule == PipelineKind::kZeroBubble && sharding != Sharding::kNone) continue;
      SCOPED_TRACE(std::string(family_name(design)) + ", " + std::string(sharding_name(sharding)));
      for (const Trained& rank :
           train_ranks(setup_of(GetParam(), design, sharding), GetParam().path, kFewSteps)) {
        expect_near(rank.losses, expected.losses, 1e-5);
        expect_near(rank.norms, expected.norms, 1e-4);
      }
    }
  }
}

// The order of streams does not matter.
TEST_P(DeviceMeshes, AreTheSameBitForBitInWhateverOrderStreamsRun) {
  const bool shards = GetParam().data > 1;
  TrainingSetup setup =
      shards ? setup_of(GetParam(), kDeep, Sharding::kParameters)
             : setup_of(GetParam(), with_layers(GetParam(), kConfig), Sharding::kNone);
  setup.precision = kernels::Precision::kBf16;
  const bool is_default = setup.schedule == PipelineKind::kOneForwardOneBackward;
  if (setup.virtual_stages == 1 && is_default) setup.schedule = PipelineKind::kGpipe;
  std::vector<Trained> first;
  for (const uint64_t seed : {1, 2, 3}) {
    vary_order(seed);
    const std::vector<Trained> ranks = train_ranks(setup, GetParam().path, kFewSteps);
    if (first.empty()) first = ranks;
    EXPECT_TRUE(ranks == first) << "seed " << seed;
  }
}

TEST_P(DeviceMeshes, EvaluateAndWriteLikeOneRankOnTheCpu) {
  const TrainingSetup setup =
      setup_of(GetParam(), with_layers(GetParam(), kConfig), Sharding::kNone);
  Training alone({.device = {}, .design = setup.design, .accumulation = 4});
  alone.train(kFewSteps);
  const double expected = alone.validate();
  const std::vector<int32_t> text = alone.write_on();
  on_device_ranks(
      setup.ranks, GetParam().path, [&](comm::Communicator& world, kernels::Device device) {
        TrainingSetup own = setup;
        own.device = device;
        Training training(own, world);
        training.train(kFewSteps);
        EXPECT_NEAR(training.validate(), expected, 1e-4);
        const auto written =
            training.model().generate({.prompt = {1, 6, 31}, .tokens = 6, .temperature = 0.0f});
        ASSERT_TRUE(written.ok()) << written.error().message;
        EXPECT_EQ(written->has_value(), training.model().place().data == 0);
        if (*written) {
          EXPECT_EQ(**written, text);
        }
      });
}

// Each matrix is orthogonalised by one rank, which gets the shards of the others.
TEST(DeviceMuon, TakesTheStepsOfOneRankOnTheCpu) {
  TrainingSetup alone{.device = {}, .design = kLlama, .accumulation = 4};
  alone.optimizer = optim::OptimizerKind::kMuon;
  const Trained expected = train_ranks(alone, GradientPath::kCpu, kFewSteps).front();
  for (const GradientPath path : {GradientPath::kHostMemory, GradientPath::kNccl}) {
    for (const Case& mesh : {Case{"Data", path, 1, 2, 1}, Case{"DataAndTensor", path, 1, 2, 2}}) {
      if (!can_exchange(path, mesh.data * mesh.tensor)) continue;
      for (const Sharding sharding : {Sharding::kNone, Sharding::kParameters}) {
        SCOPED_TRACE(std::string(mesh.name) + ", " + std::string(sharding_name(sharding)));
        TrainingSetup setup = setup_of(mesh, kLlama, sharding);
        setup.optimizer = optim::OptimizerKind::kMuon;
        for (const Trained& rank : train_ranks(setup, path, kFewSteps)) {
          expect_near(rank.losses, expected.losses, 1e-4);
        }
      }
    }
  }
}

// The only hidden matrix is in the slices of some ranks.
TEST(DeviceMuon, WorksWithRanksThatHaveNoPartOfAMatrix) {
  constexpr int64_t kRanks = 8;
  for (const GradientPath path : {GradientPath::kHostMemory, GradientPath::kNccl}) {
    if (!can_exchange(path, kRanks)) continue;
    TrainingSetup setup{.design = kClassifier, .accumulation = 1, .ranks = kRanks};
    setup.optimizer = optim::OptimizerKind::kMuon;
    const Trained plain = train_ranks(setup, path, kFewSteps).front();
    setup.sharding = {.sharding = Sharding::kOptimizer, .ranks = kRanks};
    const Trained sharded = train_ranks(setup, path, kFewSteps).front();
    expect_near(sharded.losses, plain.losses, 1e-5);
  }
}

TEST(DeviceMuon, HasTheSameBitsInWhateverOrderStreamsRun) {
  const GradientPath path =
      can_exchange(GradientPath::kNccl, 4) ? GradientPath::kNccl : GradientPath::kHostMemory;
  TrainingSetup setup = setup_of({"", path, 1, 2, 2}, kLlama, Sharding::kParameters);
  setup.optimizer = optim::OptimizerKind::kMuon;
  setup.precision = kernels::Precision::kBf16;
  std::vector<Trained> first;
  for (const uint64_t seed : {1, 2, 3}) {
    vary_order(seed);
    const std::vector<Trained> ranks = train_ranks(setup, path, kFewSteps);
    if (first.empty()) first = ranks;
    EXPECT_TRUE(ranks == first) << "seed " << seed;
  }
}

// Messages are under way, and versions are copied, from one step to the next.
TEST(DevicePipeDream, TakesTheStepsThatRanksOnTheCpuTake) {
  ModelConfig design = kConfig;
  design.layers = 4;
  design.tied = false;
  TrainingSetup setup{.design = design, .accumulation = 2, .ranks = 4, .pipeline = 4};
  setup.schedule = PipelineKind::kPipeDream;
  const Trained expected = train_ranks(setup, GradientPath::kCpu, kFewSteps + 3).front();
  for (const GradientPath path : {GradientPath::kHostMemory, GradientPath::kNccl}) {
    if (!can_exchange(path, setup.ranks)) continue;
    const Trained first = train_ranks(setup, path, kFewSteps + 3).front();
    expect_near(first.losses, expected.losses, 1e-5);
    expect_near(first.norms, expected.norms, 1e-4);
  }
}

TEST(DevicePipeDream, HasTheSameBitsInWhateverOrderStreamsRun) {
  ModelConfig design = kConfig;
  design.tied = false;
  TrainingSetup setup{.design = design, .accumulation = 2, .ranks = 4, .pipeline = 2};
  setup.schedule = PipelineKind::kPipeDream;
  setup.precision = kernels::Precision::kBf16;
  const GradientPath path = can_exchange(GradientPath::kNccl, setup.ranks)
                                ? GradientPath::kNccl
                                : GradientPath::kHostMemory;
  std::vector<Trained> first;
  for (const uint64_t seed : {1, 2, 3}) {
    vary_order(seed);
    const std::vector<Trained> ranks = train_ranks(setup, path, kFewSteps + 3);
    if (first.empty()) first = ranks;
    EXPECT_TRUE(ranks == first) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, DeviceMeshes,
    testing::Values(Case{"TensorByHostMemory", GradientPath::kHostMemory, 1, 1, 2},
                    Case{"TensorByNccl", GradientPath::kNccl, 1, 1, 2},
                    Case{"PipelineByHostMemory", GradientPath::kHostMemory, 2, 1, 1},
                    Case{"PipelineByNccl", GradientPath::kNccl, 2, 1, 1},
                    Case{"PipelineAndDataByHostMemory", GradientPath::kHostMemory, 2, 2, 1},
                    Case{"PipelineAndDataByNccl", GradientPath::kNccl, 2, 2, 1},
                    Case{"PipelineAndTensorByNccl", GradientPath::kNccl, 2, 1, 2},
                    Case{"InterleavedByHostMemory", GradientPath::kHostMemory, 2, 1, 1, 2},
                    Case{"InterleavedByNccl", GradientPath::kNccl, 2, 2, 1, 2},
                    Case{"ZeroBubbleByHostMemory", GradientPath::kHostMemory, 2, 1, 1, 1,
                         PipelineKind::kZeroBubble},
                    Case{"ZeroBubbleByNccl", GradientPath::kNccl, 2, 1, 2, 1,
                         PipelineKind::kZeroBubble},
                    Case{"RingOfFourByNccl", GradientPath::kNccl, 4, 1, 1, 2}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep::train
