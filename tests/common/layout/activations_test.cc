#include "common/layout/activations.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/layout/bump_allocator.h"

namespace lockstep {
namespace {

const ModelConfig kTiny{3, 16, 2, 8, 17};
const ModelConfig kTinyLlama{.layers = 3,
                             .width = 16,
                             .heads = 4,
                             .context = 8,
                             .vocabulary = 17,
                             .family = Family::kLlama,
                             .hidden = 40,
                             .kv_heads = 2};

struct Span {
  int64_t place, bytes;
};

// Checks that the spans neither overlap nor leave holes, except for alignment.
void expect_side_by_side(std::vector<Span> spans, int64_t bytes) {
  std::ranges::sort(spans, {}, &Span::place);
  int64_t end = 0;
  for (const Span& span : spans) {
    EXPECT_EQ(span.place % kActivationAlign, 0);
    EXPECT_GE(span.place, end);
    EXPECT_LT(span.place - end, kActivationAlign) << "a hole";
    end = span.place + span.bytes;
  }
  EXPECT_GE(bytes, end);
  EXPECT_LT(bytes - end, kActivationAlign);
}

std::vector<Span> layer_spans(const LayerActivations& at, int64_t rows, int64_t value_bytes) {
  const int64_t stream = rows * kTiny.width * value_bytes;
  std::vector<Span> spans{{at.input, stream},
                          {at.norm1, stream},
                          {at.qkv, 3 * stream},
                          {at.attention, stream},
                          {at.lse, rows * kTiny.heads * 4},
                          {at.post_attention_stream, stream},
                          {at.norm2, stream},
                          {at.hidden_in, 4 * stream},
                          {at.hidden, 4 * stream}};
  for (const int64_t place : {at.mean1, at.rstd1, at.mean2, at.rstd2}) {
    spans.push_back({place, rows * 4});
  }
  return spans;
}

std::vector<Span> head_spans(const ActivationArena& arena, int64_t rows, int64_t value_bytes) {
  const int64_t stream = rows * kTiny.width * value_bytes;
  return {{arena.output, stream},
          {arena.norm, stream},
          {arena.mean, rows * 4},
          {arena.rstd, rows * 4},
          {arena.losses, rows * 4}};
}

// Key and value width 8, gate and up width 40; RMS norms have no mean.
std::vector<Span> llama_spans(const ActivationArena& arena, int64_t rows) {
  const int64_t stream = rows * 16 * 4;
  std::vector<Span> spans{{arena.output, stream},
                          {arena.norm, stream},
                          {arena.rstd, rows * 4},
                          {arena.losses, rows * 4}};
  for (const LayerActivations& at : arena.layers) {
    spans.insert(spans.end(), {{at.input, stream},
                               {at.norm1, stream},
                               {at.qkv, rows * (16 + 2 * 8) * 4},
                               {at.attention, stream},
                               {at.lse, rows * 4 * 4},
                               {at.post_attention_stream, stream},
                               {at.norm2, stream},
                               {at.hidden_in, rows * 2 * 40 * 4},
                               {at.hidden, rows * 40 * 4},
                               {at.rstd1, rows * 4},
                               {at.rstd2, rows * 4}});
  }
  return spans;
}

TEST(ActivationArena, OfALlamaHasFewerKeysBothHiddenHalvesAndNoMeans) {
  const ActivationShape shape{.batch = 4, .sequence = 9};
  const ActivationArena arena = activation_arena(kTinyLlama, whole_model(kTinyLlama), {}, shape);
  expect_side_by_side(llama_spans(arena, shape.rows()), arena.bytes);
  EXPECT_EQ(arena.mean, -1);
  EXPECT_EQ(arena.layers[2].mean1, -1);
  // SwiGLU is not in-place, even if nothing is kept.
  const ActivationShape evaluate{.batch = 4, .sequence = 9, .mode = PassMode::kEvaluate};
  EXPECT_GE(activation_arena(kTinyLlama, whole_model(kTinyLlama), {}, evaluate).layers[0].hidden_in,
            0);
}

// Each shard has one head of queries, one of keys and one of values, of 4 values each.
TEST(ActivationArena, OfAShardHasAtLeastOneHeadOfKeysAndValues) {
  const ActivationShape shape{.batch = 4, .sequence = 8};
  for (const int64_t kv_heads : {1, 2, 4}) {
    ModelConfig config = kTinyLlama;
    config.kv_heads = kv_heads;
    const TensorShard shard{.index = 3, .size = 4};
    const auto layer = activation_arena(config, whole_model(config), shard, shape).layers[0];
    EXPECT_EQ(layer.attention - layer.qkv, shape.rows() * 3 * 4 * 4);
    config.hidden = 4;  // narrower than queries, keys and values
    const BackwardScratch scratch =
        backward_scratch(config, pipeline_stage(config, 3, 1), shard, shape);
    EXPECT_GE(scratch.bytes - scratch.wide_gradient, shape.rows() * 3 * 4 * 4);
  }
}

TEST(ActivationArena, KeepsEveryLayersTensorsApartForTraining) {
  const ActivationShape shape{.batch = 4, .sequence = 9};
  for (const int64_t value_bytes : {4, 2}) {
    const ActivationArena arena =
        activation_arena(kTiny, whole_model(kTiny), {}, shape, {.value_bytes = value_bytes});
    std::vector<Span> spans = head_spans(arena, shape.rows(), value_bytes);
    for (const LayerActivations& at : arena.layers) {
      for (const Span& span : layer_spans(at, shape.rows(), value_bytes)) spans.push_back(span);
    }
    expect_side_by_side(spans, arena.bytes);
  }
}

// Layers share one place for each tensor that is not kept.
TEST(ActivationArena, SharesWhatIsComputedAgain) {
  const ActivationShape shape{.batch = 4, .sequence = 9};
  const int64_t stream = shape.rows() * kTiny.width * 4;
  const auto arena_of = [&](Recompute recompute) {
    return activation_arena(kTiny, whole_model(kTiny), {}, shape, {.recompute = recompute});
  };
  const ActivationArena ops = arena_of(Recompute::kOps);
  const ActivationArena blocks = arena_of(Recompute::kBlocks);
  std::vector<Span> of_ops = head_spans(ops, shape.rows(), 4);
  std::vector<Span> of_blocks = head_spans(blocks, shape.rows(), 4);
  for (size_t i = 0; i < 3; ++i) {
    for (const Span& span : layer_spans(ops.layers[i], shape.rows(), 4)) {
      const LayerActivations& first = ops.layers[0];
      const bool shared = i > 0 && (span.place == first.norm1 || span.place == first.norm2 ||
                                    span.place == first.hidden);
      if (!shared) of_ops.push_back(span);
    }
    if (i > 0) of_blocks.push_back({blocks.layers[i].input, stream});
  }
  for (const Span& span : layer_spans(blocks.layers[0], shape.rows(), 4)) of_blocks.push_back(span);
  expect_side_by_side(of_ops, ops.bytes);
  expect_side_by_side(of_blocks, blocks.bytes);
}

// GPT-2 124M with 64 sequences of 1024 tokens in bf16: rows times width values are 96 MiB. A layer
// keeps 16 times that (plus the statistics), 10 times without norms and GELU's output, or its input
// alone.
TEST(ActivationArena, OfGpt2GrowsWithWhatALayerKeeps) {
  const ModelConfig config = model_preset("gpt2-124m").value();
  const ActivationShape shape{.batch = 64, .sequence = 1024};
  const auto mib_of_a_layer = [&](Recompute recompute) {
    ModelConfig more = config;
    more.layers += 1;
    const ActivationOptions options{.value_bytes = 2, .recompute = recompute};
    const auto bytes = [&](const ModelConfig& of) {
      return activation_arena(of, whole_model(of), {}, shape, options).bytes;
    };
    return static_cast<double>(bytes(more) - bytes(config)) / (1 << 20);
  };
  const double statistics = 4 * 0.25 + 12 * 0.25;  // of norms and of attention
  EXPECT_DOUBLE_EQ(mib_of_a_layer(Recompute::kNone), 16 * 96 + statistics);
  EXPECT_DOUBLE_EQ(mib_of_a_layer(Recompute::kOps), 10 * 96 + statistics);
  EXPECT_DOUBLE_EQ(mib_of_a_layer(Recompute::kBlocks), 96);
}

// In training all micro-batches share one chunk of logits, in the place of the hidden values'
// gradient. Evaluations have their own.
TEST(BackwardScratch, HasTheLogitsOfAChunk) {
  const Stage last = pipeline_stage(kTiny, 3, 2);
  const ActivationShape shape{.batch = 4, .sequence = 8};
  for (const int64_t rows : {32, 8}) {
    const ActivationOptions options{.head_logits_max = rows * kTiny.vocabulary};
    EXPECT_EQ(activation_arena(kTiny, last, {}, shape, options).chunk.logits, -1);
    const BackwardScratch scratch = backward_scratch(kTiny, last, {}, shape, options);
    EXPECT_EQ(scratch.chunk.logits, scratch.wide_gradient);
    EXPECT_EQ(scratch.chunk.sums, -1);
    EXPECT_GE(scratch.bytes - scratch.chunk.logits,
              4 * std::max(rows * kTiny.vocabulary, shape.rows() * kTiny.hidden_width()));
  }
  const ActivationShape evaluate{.batch = 4, .sequence = 8, .mode = PassMode::kEvaluate};
  EXPECT_GE(activation_arena(kTiny, last, {}, evaluate).chunk.logits, 0);
  const Stage first = pipeline_stage(kTiny, 3, 0);
  EXPECT_EQ(backward_scratch(kTiny, first, {}, shape).chunk.logits, -1);
}

TEST(BackwardScratch, HasTheSumsOfAShardedVocabularyApart) {
  ModelConfig wide = kTiny;
  wide.vocabulary = 1000;
  const ActivationShape shape{.batch = 4, .sequence = 8};
  const BackwardScratch scratch =
      backward_scratch(wide, whole_model(wide), {.index = 1, .size = 2}, shape);
  const int64_t rows = shape.rows();
  const int64_t stream = rows * wide.width * 4;
  expect_side_by_side({{scratch.residual_gradient, stream},
                       {scratch.branch_gradient, stream},
                       {scratch.chunk.logits, rows * padded_vocabulary(wide, 2) / 2 * 4},
                       {scratch.chunk.maxima, rows * 4},
                       {scratch.chunk.sums, rows * 4},
                       {scratch.chunk.target_logits, rows * 4}},
                      scratch.bytes);
}

TEST(HeadRows, AreAllOrAPowerOfTwoWhoseLogitsFit) {
  const ModelConfig gpt2 = model_preset("gpt2-124m").value();
  EXPECT_EQ(head_rows(gpt2, {}, 65536, {}), 8192);
  EXPECT_EQ(head_rows(gpt2, {}, 9000, {}), 8192);
  EXPECT_EQ(head_rows(gpt2, {}, 8192, {}), 8192);
  EXPECT_EQ(head_rows(gpt2, {}, 1000, {}), 1000);
  EXPECT_EQ(head_rows(gpt2, {0, 2}, 65536, {}), 16384) << "half of the vocabulary";
  EXPECT_EQ(head_rows(kTiny, {}, 65536, {}), 65536);
  EXPECT_EQ(head_rows(kTiny, {}, 10, {.head_logits_max = 1}), 1);
}

TEST(Recompute, HasItsNames) {
  EXPECT_EQ(parse_recompute("none").value(), Recompute::kNone);
  EXPECT_EQ(parse_recompute("ops").value(), Recompute::kOps);
  EXPECT_EQ(parse_recompute("blocks").value(), Recompute::kBlocks);
  EXPECT_EQ(parse_recompute("layers").error().code, Code::kInvalid);
}

TEST(ActivationArena, OfAnEvaluationDoesNotGrowWithTheLayers) {
  ModelConfig deep = kTiny;
  deep.layers = 30;
  const ActivationShape shape{.batch = 4, .sequence = 8, .mode = PassMode::kEvaluate};
  EXPECT_EQ(activation_arena(kTiny, whole_model(kTiny), {}, shape).bytes,
            activation_arena(deep, whole_model(deep), {}, shape).bytes);
}

TEST(ActivationArena, LeavesOutWhatAStageDoesNotHave) {
  const ActivationShape shape{.batch = 4, .sequence = 8};
  const ActivationArena first = activation_arena(kTiny, pipeline_stage(kTiny, 3, 0), {}, shape);
  EXPECT_EQ(first.layers.size(), 1u);
  EXPECT_EQ(first.chunk.logits, -1);
  EXPECT_EQ(first.losses, -1);
  EXPECT_GE(first.output, 0);
}

}  // namespace
}  // namespace lockstep
