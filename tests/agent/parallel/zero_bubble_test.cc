// Stages that compute the gradients of parameters apart train the model of one rank.
#include <gtest/gtest.h>

#include <string>

#include "common/layout/sharding.h"
#include "tests/agent/parallel/trained_ranks.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kGpt = small_gpt(4);
constexpr ModelConfig kLlama = small_llama(4, 2);
constexpr ModelConfig kBert = small_bert(4);

ComposeOptions zero_bubble_for(const ModelDesign& design, const Mesh& mesh) {
  ComposeOptions options = options_for(design, mesh, 4);
  options.pipeline = PipelineKind::kZeroBubble;
  return options;
}

TEST(ZeroBubble, TrainsTheModelOfOneRankWithSplitRows) {
  const Mesh mesh{.pipeline = 2, .tensor = 2};
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    SCOPED_TRACE(family_name(design));
    const Trained alone = train(options_for(design, {}, 1));
    ComposeOptions options = zero_bubble_for(design, mesh);
    options.sequence_parallel = true;
    const Trained split = train(options);
    expect_close(design, alone, split);
    expect_same_bits(split, train(options));
  }
}

TEST(ZeroBubble, TrainsTheModelOfOneRankWithAShardedOptimizer) {
  const Mesh mesh{.pipeline = 2, .data = 2};
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(kLlama), ModelDesign(kBert)}) {
    SCOPED_TRACE(family_name(design));
    ComposeOptions options = zero_bubble_for(design, mesh);
    const Trained plain = train(options);
    expect_close(design, train(options_for(design, {}, 1)), plain);
    options.sharding = {.sharding = Sharding::kOptimizer, .ranks = 2};
    expect_close(design, plain, train(options));
  }
}

TEST(ZeroBubble, TrainsStagesOfTheSizesThatAreGiven) {
  ComposeOptions options = zero_bubble_for(kGpt, {.pipeline = 2, .part_layers = {1, 3}});
  const Trained alone = train(options_for(kGpt, {}, 1));
  expect_close(kGpt, alone, train(options));
  options.mesh.part_layers = {1, 2};
  EXPECT_EQ(check(options).error().message,
            "[compose] the layers of the stages: expected numbers of at least 1 whose sum is the "
            "layers, 4");
}

// The gradients that wait have the places of activations that backward has read.
TEST(ZeroBubble, NeedsNoMoreMemoryForAMicroBatch) {
  ComposeOptions options = zero_bubble_for(kGpt, {.pipeline = 2});
  const MemoryPlan split = plan_memory(options).value();
  options.pipeline = PipelineKind::kOneForwardOneBackward;
  const MemoryPlan whole = plan_memory(options).value();
  const auto activations = static_cast<size_t>(DevicePart::kActivations);
  EXPECT_EQ(split.device.parts[activations].bytes, whole.device.parts[activations].bytes);
}

TEST(ZeroBubble, RefusesWhatItCannotDo) {
  ComposeOptions options = zero_bubble_for(kGpt, {.pipeline = 2, .data = 2});
  const std::string message =
      "[compose] zerobubble works only without recomputation and without sharded gradients";
  options.recompute = Recompute::kOps;
  EXPECT_EQ(check(options).error().message, message);
  options.recompute = Recompute::kNone;
  EXPECT_TRUE(check(options).ok());
  options.sharding = {.sharding = Sharding::kGradients, .ranks = 2};
  EXPECT_EQ(check(options).error().message, message);
}

}  // namespace
}  // namespace lockstep::parallel
