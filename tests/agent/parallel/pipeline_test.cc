// Ranks that divide the layers among them train the model of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "common/layout/sharding.h"
#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kGpt = small_gpt(4);
constexpr ModelConfig kLlama = small_llama(4, 4);
constexpr ModelConfig kBert = small_bert(4);
constexpr PipelineKind kKinds[] = {PipelineKind::kNaive, PipelineKind::kGpipe,
                                   PipelineKind::kOneForwardOneBackward, PipelineKind::kZeroBubble};

ComposeOptions pipeline_for(const ModelDesign& design, const Mesh& mesh, PipelineKind kind,
                            int64_t micro_batches) {
  ComposeOptions options = options_for(design, mesh, micro_batches);
  options.pipeline = kind;
  return options;
}

class Pipelines : public testing::TestWithParam<Mesh> {};

TEST_P(Pipelines, TrainTheModelOfOneRank) {
  const Mesh mesh = GetParam();
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    const Trained alone = train(options_for(design, {}, 1));
    for (const PipelineKind kind : kKinds) {
      SCOPED_TRACE(std::string(family_name(design)) + ", " + std::string(pipeline_kind_name(kind)));
      expect_close(design, alone, train(pipeline_for(design, mesh, kind, 8 / mesh.data)));
    }
  }
}

// However the schedule orders the passes, gradients are summed in the same order.
TEST_P(Pipelines, HaveTheSameBitsWithEachSchedule) {
  const Mesh mesh = GetParam();
  const int64_t micro_batches = 8 / mesh.data;
  const Trained naive = train(pipeline_for(kGpt, mesh, PipelineKind::kNaive, micro_batches));
  for (const PipelineKind kind : kKinds) {
    SCOPED_TRACE(pipeline_kind_name(kind));
    expect_same_bits(naive, train(pipeline_for(kGpt, mesh, kind, micro_batches)));
  }
}

TEST_P(Pipelines, ShardTheState) {
  const Mesh mesh = GetParam();
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    const Trained alone = train(options_for(design, {}, 1));
    for (const Sharding sharding :
         {Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
      for (const bool frees : {true, false}) {
        if (!frees && sharding != Sharding::kParameters) continue;
        SCOPED_TRACE(std::string(family_name(design)) + ", " +
                     std::string(sharding_name(sharding)));
        ComposeOptions options =
            pipeline_for(design, mesh, PipelineKind::kOneForwardOneBackward, 8 / mesh.data);
        options.sharding = {
            .sharding = sharding, .ranks = mesh.data, .reshard_after_forward = frees};
        expect_close(design, alone, train(options));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pipeline, Pipelines,
                         testing::Values(Mesh{.pipeline = 2}, Mesh{.pipeline = 4},
                                         Mesh{.pipeline = 2, .data = 2},
                                         Mesh{.pipeline = 2, .tensor = 2},
                                         Mesh{.pipeline = 2, .data = 2, .tensor = 2}),
                         [](const auto& mesh) {
                           return "Pipeline" + std::to_string(mesh.param.pipeline) + "Data" +
                                  std::to_string(mesh.param.data) + "Tensor" +
                                  std::to_string(mesh.param.tensor);
                         });

TEST(Pipeline, HasTheBitsOfOneRankWithAsManyMicroBatches) {
  const Trained alone = train(options_for(kLlama, {}, 4));
  for (const int64_t stages : {2, 4}) {
    expect_same_bits(alone, train(pipeline_for(kLlama, {.pipeline = stages},
                                               PipelineKind::kOneForwardOneBackward, 4)));
  }
}

TEST(Pipeline, TrainsWithFewerMicroBatchesThanStages) {
  const Trained alone = train(options_for(kGpt, {}, 1));
  for (const PipelineKind kind : kKinds) {
    SCOPED_TRACE(pipeline_kind_name(kind));
    expect_close(kGpt, alone, train(pipeline_for(kGpt, {.pipeline = 4}, kind, 2)));
  }
}

TEST(Pipeline, TellsWhichMicroBatchItWorksOn) {
  for (const int64_t stages : {1, 2}) {
    ComposeOptions options = pipeline_for(kGpt, {.pipeline = stages}, PipelineKind::kNaive, 4);
    std::mutex mutex;
    std::vector<int64_t> told;
    options.observe_micro_batch = [&](int64_t micro_batch) {
      const std::lock_guard lock(mutex);
      if (told.empty() || told.back() != micro_batch) told.push_back(micro_batch);
    };
    train(options);
    if (stages == 1) {
      for (size_t i = 0; i < told.size(); ++i) {
        EXPECT_EQ(told[i], i % 5 == 4 ? -1 : static_cast<int64_t>(i % 5));
      }
      EXPECT_EQ(told.size(), 5u * kSteps);
    }
    EXPECT_EQ(std::ranges::max(told), 3);
    EXPECT_EQ(told.back(), -1);
  }
}

TEST(Pipeline, GivesTheSameBitsWithRecomputationAndEachTime) {
  ComposeOptions options = pipeline_for(kGpt, {.pipeline = 2, .data = 2}, PipelineKind::kGpipe, 4);
  const Trained first = train(options);
  expect_same_bits(first, train(options));
  options.recompute = Recompute::kBlocks;
  expect_same_bits(first, train(options));
}

TEST(Pipeline, OffloadsTheState) {
  const Mesh mesh{.pipeline = 2, .data = 2};
  ComposeOptions options = pipeline_for(kGpt, mesh, PipelineKind::kOneForwardOneBackward, 4);
  options.sharding = {.sharding = Sharding::kParameters, .ranks = 2};
  const Trained near = train(options);
  options.offload.offload = Offload::kParameters;
  expect_same_bits(near, train(options));
}

TEST(Pipeline, TrainsWithTheFirstRankOfEachStageAsServer) {
  const Trained alone = train(options_for(kGpt, {}, 1));
  ComposeOptions options =
      pipeline_for(kGpt, {.pipeline = 2, .data = 2}, PipelineKind::kOneForwardOneBackward, 2);
  options.exchange = Exchange::kFirstRank;
  expect_close(kGpt, alone, train(options));
}

TEST(Pipeline, TrainsWithBf16) {
  ComposeOptions options = pipeline_for(kGpt, {.pipeline = 2}, PipelineKind::kGpipe, 4);
  const Trained plain = train(options);
  options.precision = kernels::Precision::kBf16;
  const Trained rounded = train(options);
  for (size_t step = 0; step < plain.losses.size(); ++step) {
    EXPECT_NEAR(plain.losses[step], rounded.losses[step], 0.02);
  }
}

TEST(Pipeline, SendsActivationsInTheChosenType) {
  ComposeOptions options =
      pipeline_for(kGpt, {.pipeline = 2}, PipelineKind::kOneForwardOneBackward, 4);
  const Trained plain = train(options);
  const MemoryPlan memory = plan_memory(options).value();
  options.transfer = kernels::DType::kF32;
  expect_same_bits(plain, train(options));
  options.transfer = kernels::DType::kBf16;
  const Trained rounded = train(options);
  for (size_t step = 0; step < plain.losses.size(); ++step) {
    EXPECT_NEAR(plain.losses[step], rounded.losses[step], 0.02);
  }
  EXPECT_NE(plain.losses, rounded.losses);
  const auto messages = static_cast<size_t>(DevicePart::kMessages);
  EXPECT_EQ(plan_memory(options)->device.parts[messages].bytes * 2,
            memory.device.parts[messages].bytes);
}

TEST(Pipeline, KeepsTheStateThatItIsGiven) {
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    Trained first = train(options_for(design, {}, 1));
    for (const Mesh& mesh : {Mesh{.pipeline = 4}, Mesh{.pipeline = 2, .data = 2, .tensor = 2}}) {
      ComposeOptions options =
          pipeline_for(design, mesh, PipelineKind::kOneForwardOneBackward, 8 / mesh.data);
      options.sharding = {.sharding = Sharding::kParameters, .ranks = mesh.data};
      const KeptState kept = saved_after_load(options, first.state);
      EXPECT_TRUE(first.state.tensors() == kept.tensors());
    }
  }
}

TEST(Pipeline, ContinuesTheStateOfOneRank) {
  const ComposeOptions alone = options_for(kLlama, {}, 4);
  Trained first = train(alone);
  const Trained expected = train(alone, {.state = &first.state, .steps = kSteps});
  const ComposeOptions split =
      pipeline_for(kLlama, {.pipeline = 2}, PipelineKind::kOneForwardOneBackward, 4);
  expect_same_bits(expected, train(split, {.state = &first.state, .steps = kSteps}));
}

}  // namespace
}  // namespace lockstep::parallel
