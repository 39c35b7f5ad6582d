#include "common/layout/activations.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/layout/cost.h"
#include "common/layout/parameters.h"

namespace lockstep {
namespace {

const ModelConfig kTiny{3, 16, 2, 8, 17};

TEST(ActivationArena, KeepsEveryLayersTensorsApartForTraining) {
  const ActivationShape shape{.batch = 4, .sequence = 8};
  const ActivationArena arena = activation_arena(kTiny, whole_model(kTiny), {}, shape);
  const int64_t stream = shape.rows() * kTiny.width;
  struct Span {
    int64_t offset, count;
  };
  std::vector<Span> spans;
  for (const LayerActivations& at : arena.layers) {
    spans.insert(spans.end(), {{at.input, stream},
                               {at.norm1, stream},
                               {at.qkv, 3 * stream},
                               {at.attention, stream},
                               {at.lse, shape.rows() * kTiny.heads},
                               {at.middle, stream},
                               {at.norm2, stream},
                               {at.hidden_in, 4 * stream},
                               {at.hidden, 4 * stream}});
    for (const int64_t offset : {at.mean1, at.rstd1, at.mean2, at.rstd2}) {
      spans.push_back({offset, shape.rows()});
    }
  }
  spans.insert(spans.end(), {{arena.output, stream},
                             {arena.norm, stream},
                             {arena.mean, shape.rows()},
                             {arena.rstd, shape.rows()},
                             {arena.logits, shape.rows() * kTiny.vocabulary},
                             {arena.losses, shape.rows()}});
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.offset < b.offset; });
  int64_t end = 0;
  for (const Span& span : spans) {
    EXPECT_EQ(span.offset % 16, 0);
    EXPECT_GE(span.offset, end);
    EXPECT_LT(span.offset - end, 16) << "a hole";
    end = span.offset + span.count;
  }
  EXPECT_GE(arena.count, end);
  EXPECT_LT(arena.count - end, 16);
}

TEST(ActivationArena, OfAnEvaluationDoesNotGrowWithTheLayers) {
  ModelConfig deep = kTiny;
  deep.layers = 30;
  const ActivationShape shape{.batch = 4, .sequence = 8, .mode = PassMode::kEvaluate};
  EXPECT_EQ(activation_arena(kTiny, whole_model(kTiny), {}, shape).count,
            activation_arena(deep, whole_model(deep), {}, shape).count);
}

TEST(ActivationArena, LeavesOutWhatAStageDoesNotHave) {
  const ActivationShape shape{.batch = 4, .sequence = 8};
  const ActivationArena first = activation_arena(kTiny, pipeline_stage(kTiny, 3, 0), {}, shape);
  EXPECT_EQ(first.layers.size(), 1u);
  EXPECT_EQ(first.logits, -1);
  EXPECT_EQ(first.losses, -1);
  EXPECT_GE(first.output, 0);
}

TEST(MemoryPlan, AddsUpTheArenas) {
  const MemoryRequest request{.stage = whole_model(kTiny),
                              .shard = {},
                              .shape = {.batch = 4, .sequence = 8},
                              .micro_batches_in_flight = 3,
                              .bf16_copy = true};
  const MemoryPlan plan = memory_plan(kTiny, request);
  const int64_t parameters = parameter_arena(kTiny, request.stage).count;
  EXPECT_EQ(plan.weights, 4 * parameters);
  EXPECT_EQ(plan.weight_copies, 2 * parameters);
  EXPECT_EQ(plan.gradients, 4 * parameters);
  EXPECT_EQ(plan.optimizer, 8 * parameters);
  EXPECT_EQ(plan.activations,
            3 * 4 * activation_arena(kTiny, request.stage, {}, request.shape).count);
  EXPECT_EQ(plan.scratch, 4 * backward_scratch(kTiny, {}, request.shape).count);
  EXPECT_EQ(plan.total(), 18 * parameters + plan.activations + plan.scratch);
}

TEST(MemoryPlan, OfAnEvaluationHasNoGradients) {
  const MemoryPlan plan =
      memory_plan(kTiny, {.stage = whole_model(kTiny),
                          .shard = {},
                          .shape = {.batch = 4, .sequence = 8, .mode = PassMode::kEvaluate}});
  EXPECT_EQ(plan.gradients, 0);
  EXPECT_EQ(plan.optimizer, 0);
  EXPECT_EQ(plan.scratch, 0);
}

}  // namespace
}  // namespace lockstep
