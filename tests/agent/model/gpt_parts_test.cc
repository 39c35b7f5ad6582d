#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/model/transformer/gpt.h"
#include "tests/agent/model/tiny_gpt.h"

namespace lockstep::model {
namespace {

using test::ArenaSink;
using test::ArenaStore;
using test::sum_of_losses;
using test::Text;
using test::TinyGpt;

const ModelConfig kTiny{3, 16, 4, 8, 17};

// Heads of 4 values; two query heads share one key head.
ModelConfig tiny_llama(bool tied) {
  return {.layers = 3,
          .width = 16,
          .heads = 4,
          .context = 8,
          .vocabulary = 17,
          .family = Family::kLlama,
          .hidden = 24,
          .tied = tied,
          .kv_heads = 2};
}

const ModelConfig kTinyBert{.layers = 3,
                            .width = 16,
                            .heads = 4,
                            .context = 8,
                            .vocabulary = 17,
                            .family = Family::kBert,
                            .hidden = 24,
                            .norm_epsilon = 1e-12};

// A model that is split over stages or shards.
class EachSplitModel : public ::testing::TestWithParam<ModelConfig> {
 protected:
  const ModelConfig config_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(Models, EachSplitModel,
                         ::testing::Values(kTiny, tiny_llama(true), tiny_llama(false), kTinyBert),
                         [](const auto& info) {
                           return std::string(family_name(info.param.family)) +
                                  (info.param.tied ? "Tied" : "Untied");
                         });

// One stage; a Pipeline has all of them.
struct Part {
  Gpt model;
  ArenaStore store;
  ArenaSink sink;
  GptBatch batch;
};
using Pipeline = std::vector<std::unique_ptr<Part>>;

Pipeline make_pipeline(const ModelConfig& config, int64_t size, const ActivationShape& shape,
                       kernels::Stream& stream, TpRegion& region,
                       Recompute recompute = Recompute::kNone) {
  Pipeline pipeline;
  for (int64_t index = 0; index < size; ++index) {
    const Stage stage = pipeline_stage(config, size, index);
    Gpt model = Gpt::create({.config = config, .stage = stage, .recompute = recompute},
                            kernels::cpu_ops(), stream, region)
                    .value();
    ArenaStore store(config, stage);
    store.initialise({}, 1);
    ArenaSink sink(store.arena());
    GptBatch batch = model.make_micro_batch(shape).value();
    pipeline.push_back(std::unique_ptr<Part>(
        new Part{std::move(model), std::move(store), std::move(sink), std::move(batch)}));
  }
  return pipeline;
}

void run_forward(Pipeline& pipeline, const Text& text) {
  for (size_t i = 0; i < pipeline.size(); ++i) {
    Part& part = *pipeline[i];
    ASSERT_TRUE(part.batch.begin(text.input()).ok());
    if (i > 0) {
      std::copy_n(pipeline[i - 1]->batch.stage_output().f32(),
                  text.rows() * part.model.config().width, part.batch.stage_input().f32());
    }
    ASSERT_TRUE(forward_pass(part.model, part.store, part.batch).ok());
  }
}

void run_backward(Pipeline& pipeline, const Text& text) {
  for (size_t i = pipeline.size(); i-- > 0;) {
    Part& part = *pipeline[i];
    if (i + 1 < pipeline.size()) {
      std::copy_n(pipeline[i + 1]->batch.input_gradient().f32(),
                  text.rows() * part.model.config().width, part.batch.output_gradient().f32());
    }
    ASSERT_TRUE(backward_pass(part.model, part.store, part.batch, part.sink).ok());
  }
}

// Sums over all stages that have the parameter.
std::vector<float> summed_gradient(const Pipeline& pipeline, const Parameter& parameter) {
  std::vector<float> sum(static_cast<size_t>(parameter.count()));
  for (const std::unique_ptr<Part>& part : pipeline) {
    if (part->store.arena().find(parameter.id) == nullptr) continue;
    const std::span<float> gradient = part->sink.of(parameter.id);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
  }
  return sum;
}

TEST_P(EachSplitModel, IsItsStagesTogether) {
  const Text text(config_, 4, 8, 5);
  TinyGpt whole(config_, {4, 8});
  whole.sink.begin_step();
  const double loss = whole.forward_backward(text.input());
  kernels::Stream stream;
  WholeTensor no_shards;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kOps, Recompute::kBlocks}) {
    Pipeline pipeline = make_pipeline(config_, 3, {4, 8}, stream, no_shards, recompute);
    run_forward(pipeline, text);
    run_backward(pipeline, text);
    EXPECT_NEAR(sum_of_losses(pipeline.back()->batch), loss, 1e-6 * loss);
    for (const Parameter& parameter : parameter_table(config_)) {
      const std::vector<float> sum = summed_gradient(pipeline, parameter);
      const std::span<float> expected = whole.sink.of(parameter.id);
      for (size_t i = 0; i < sum.size(); ++i) {
        ASSERT_NEAR(sum[i], expected[i], 1e-7) << parameter.name << " at " << i;
      }
    }
  }
}

TEST_P(EachSplitModel, OfAStageSaysOnceAndInDescendingOrderWhichGradientsAreComplete) {
  const Text text(config_, 4, 8, 5);
  kernels::Stream stream;
  WholeTensor no_shards;
  Pipeline pipeline = make_pipeline(config_, 3, {4, 8}, stream, no_shards);
  run_forward(pipeline, text);
  run_backward(pipeline, text);
  for (const std::unique_ptr<Part>& part : pipeline) {
    std::vector<int64_t> expected;
    for (const ArenaEntry& entry : part->store.arena().entries) {
      expected.insert(expected.begin(), entry.id);
    }
    EXPECT_EQ(part->sink.ready_ids(), expected);
  }
}

// Two micro-batches go backward before either of them computes the gradients of the matrices.
TEST_P(EachSplitModel, HasTheSameGradientsWithABackwardInTwoParts) {
  const Text texts[] = {{config_, 4, 8, 5}, {config_, 4, 8, 6}};
  TinyGpt whole(config_, {4, 8});
  whole.sink.begin_step();
  kernels::Stream stream;
  WholeTensor no_shards;
  const Stage stage = whole_model(config_);
  Gpt model = Gpt::create({.config = config_, .stage = stage, .splits_backward = true},
                          kernels::cpu_ops(), stream, no_shards)
                  .value();
  ArenaStore store(config_, stage);
  store.initialise({}, 1);
  ArenaSink sink(store.arena());
  GptBatch batches[] = {model.make_micro_batch({4, 8}).value(),
                        model.make_micro_batch({4, 8}).value()};
  for (size_t i = 0; i < 2; ++i) {
    whole.forward_backward(texts[i].input());
    ASSERT_TRUE(batches[i].begin(texts[i].input()).ok());
    ASSERT_TRUE(forward_pass(model, store, batches[i]).ok());
    ASSERT_TRUE(backward_inputs_pass(model, store, batches[i], sink).ok());
  }
  EXPECT_TRUE(sink.ready_ids().empty());
  EXPECT_EQ(sink.micro_batches(), 0);
  ASSERT_TRUE(backward_weights_pass(model, batches[0], sink).ok());
  EXPECT_EQ(std::ssize(sink.ready_ids()), std::ssize(store.arena().entries));
  EXPECT_TRUE(std::ranges::is_sorted(sink.ready_ids(), std::greater<>()));
  ASSERT_TRUE(backward_weights_pass(model, batches[1], sink).ok());
  EXPECT_EQ(sink.micro_batches(), 2);
  for (const Parameter& parameter : parameter_table(config_)) {
    const std::span<float> expected = whole.sink.of(parameter.id);
    const std::span<float> found = sink.of(parameter.id);
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 1e-7) << parameter.name << " at " << i;
    }
  }
}

TEST(SplitBackward, DoesNotRecompute) {
  kernels::Stream stream;
  WholeTensor no_shards;
  const Result<Gpt> model = Gpt::create({.config = kTiny,
                                         .stage = whole_model(kTiny),
                                         .recompute = Recompute::kOps,
                                         .splits_backward = true},
                                        kernels::cpu_ops(), stream, no_shards);
  EXPECT_EQ(model.error().message, "[model] a backward in two parts cannot recompute activations");
}

// Two shards as two threads, which reduce in the order of their indices.
class ThreadRegion final : public TpRegion {
 public:
  struct Shared {
    std::barrier<> barrier{2};
    std::array<float*, 2> data{};
    std::vector<float> result;
    Overlap overlap = Overlap::kNone;
  };
  ThreadRegion(Shared& shared, int64_t index) : shared_(shared), index_(index) {}

  TensorShard shard() const override { return {index_, 2}; }
  Overlap overlap() const override { return shared_.overlap; }
  Status gather_rows(const RegionRows& rows, Pass) override {
    if (rows.parts == 1) return {};
    const int64_t count = rows.count / rows.parts;
    shared_.data[static_cast<size_t>(index_)] = rows.part.f32();
    shared_.barrier.arrive_and_wait();
    for (size_t i = 0; i < 2; ++i) {
      std::copy_n(shared_.data[i], count, rows.whole.f32() + static_cast<int64_t>(i) * count);
    }
    shared_.barrier.arrive_and_wait();
    return {};
  }
  Status sum_rows(const RegionRows& rows, Pass) override {
    TRY(sum(rows.whole.f32(), rows.count));
    const int64_t count = rows.count / rows.parts;
    const float* mine = rows.whole.f32() + (rows.parts == 1 ? 0 : index_ * count);
    if (rows.part.f32() != mine) std::copy_n(mine, count, rows.part.f32());
    return {};
  }
  // As late as possible.
  void start_sum_rows(const RegionRows& rows) override { started_.push_back(rows); }
  Status finish(Pass pass) override {
    for (const RegionRows& rows : std::exchange(started_, {})) TRY(sum_rows(rows, pass));
    return {};
  }
  Status sum(float* values, int64_t count) override {
    return reduce(values, count, [](float a, float b) { return a + b; });
  }
  Status max(float* values, int64_t count) override {
    return reduce(values, count, [](float a, float b) { return std::max(a, b); });
  }
  Status gather(kernels::ConstView, kernels::View, int64_t) override {
    return invalid("[test] nothing is sampled");
  }

 private:
  template <class Op>
  Status reduce(float* values, int64_t count, Op op) {
    shared_.data[static_cast<size_t>(index_)] = values;
    shared_.barrier.arrive_and_wait();
    if (index_ == 0) {
      shared_.result.resize(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) {
        shared_.result[static_cast<size_t>(i)] = op(shared_.data[0][i], shared_.data[1][i]);
      }
    }
    shared_.barrier.arrive_and_wait();
    std::copy_n(shared_.result.begin(), count, values);
    shared_.barrier.arrive_and_wait();
    return {};
  }

  Shared& shared_;
  int64_t index_;
  std::vector<RegionRows> started_;
};

// The results of one shard.
struct ShardOutcome {
  double loss = 0;
  ParameterArena arena;
  std::vector<float> gradients;
};

ShardOutcome run_shard(ThreadRegion::Shared& shared, int64_t index, const GptOptions& options,
                       const Text& text) {
  kernels::Stream stream;
  ThreadRegion region(shared, index);
  Gpt model = Gpt::create(options, kernels::cpu_ops(), stream, region).value();
  ArenaStore store(options.config, options.stage, region.shard());
  store.initialise(region.shard(), 1);
  ArenaSink sink(store.arena());
  GptBatch batch = model.make_micro_batch({text.batch, text.sequence}).value();
  EXPECT_TRUE(batch.begin(text.input()).ok());
  EXPECT_TRUE(forward_pass(model, store, batch).ok());
  EXPECT_TRUE(backward_pass(model, store, batch, sink).ok());
  return {sum_of_losses(batch), store.arena(), sink.gradients()};
}

// Adds up the gradients that each shard has of its rows only.
void add_up_rows(const ModelConfig& config, std::array<ShardOutcome, 2>& shards) {
  for (const Parameter& parameter : parameter_table(config)) {
    if (!parameter.works_on_rows) continue;
    const ArenaEntry& entry = *shards[0].arena.find(parameter.id);
    for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
      float& first = shards[0].gradients[static_cast<size_t>(i)];
      float& second = shards[1].gradients[static_cast<size_t>(i)];
      first = second = first + second;
    }
  }
}

void expect_shards_are_the_whole(const GptOptions& options, Overlap overlap = Overlap::kNone,
                                 int64_t sequence = 8) {
  const Text text(options.config, 4, sequence, 5);
  TinyGpt whole(options.config, {4, sequence});
  whole.sink.begin_step();
  const double loss = whole.forward_backward(text.input());

  ThreadRegion::Shared shared;
  shared.overlap = overlap;
  std::array<ShardOutcome, 2> shards;
  {
    std::jthread peer([&] { shards[1] = run_shard(shared, 1, options, text); });
    shards[0] = run_shard(shared, 0, options, text);
  }
  if (options.sequence_parallel) add_up_rows(options.config, shards);
  for (int64_t index = 0; index < 2; ++index) {
    const ShardOutcome& shard = shards[static_cast<size_t>(index)];
    EXPECT_NEAR(shard.loss, loss, 1e-6 * loss);
    for (const Parameter& parameter : parameter_table(options.config)) {
      const ArenaEntry& entry = *shard.arena.find(parameter.id);
      const std::span<float> expected = whole.sink.of(parameter.id);
      for (const ShardRun& run : shard_runs(parameter, entry, {index, 2})) {
        for (int64_t i = 0; i < run.count; ++i) {
          ASSERT_NEAR(shard.gradients[static_cast<size_t>(entry.offset + run.local + i)],
                      expected[static_cast<size_t>(run.global + i)], 1e-6)
              << parameter.name << " of shard " << index;
        }
      }
    }
  }
}

TEST_P(EachSplitModel, IsItsShardsTogether) {
  expect_shards_are_the_whole({.config = config_, .stage = whole_model(config_)});
}

TEST_P(EachSplitModel, IsItsShardsTogetherWithAHeadInChunksAndBlocksComputedAgain) {
  constexpr int64_t kFourRows = 4 * 9;  // 9 columns per shard
  expect_shards_are_the_whole({.config = config_,
                               .stage = whole_model(config_),
                               .recompute = Recompute::kBlocks,
                               .head_logits_max = kFourRows});
}

TEST_P(EachSplitModel, IsItsShardsTogetherWithPartsOfTheRows) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kOps, Recompute::kBlocks}) {
    expect_shards_are_the_whole({.config = config_,
                                 .stage = whole_model(config_),
                                 .recompute = recompute,
                                 .sequence_parallel = true});
  }
}

TEST_P(EachSplitModel, IsItsShardsTogetherWhileSumsTravel) {
  for (const bool sequence_parallel : {false, true}) {
    for (const Overlap overlap : {Overlap::kWeights, Overlap::kChunks}) {
      expect_shards_are_the_whole({.config = config_,
                                   .stage = whole_model(config_),
                                   .recompute = Recompute::kBlocks,
                                   .sequence_parallel = sequence_parallel,
                                   .head_logits_max = 4 * 9},
                                  overlap);
    }
  }
}

// 4 x 165 rows of 256 values: two chunks.
ModelConfig wide(ModelConfig config) {
  config.layers = 1;
  config.width = 256;
  config.context = 165;
  if (config.hidden > 0) config.hidden = 128;
  return config;
}

TEST_P(EachSplitModel, IsItsShardsTogetherWithSumsOfChunks) {
  const ModelConfig config = wide(config_);
  ASSERT_EQ(sums_for(int64_t{4} * config.context * config.width * 4), 2);
  expect_shards_are_the_whole({.config = config, .stage = whole_model(config)}, Overlap::kChunks,
                              config.context);
}

TEST(Sums, AreInNoMoreChunksThanPay) {
  EXPECT_EQ(sums_for(0), 1);
  EXPECT_EQ(sums_for(2 * kSumBytesMin - 1), 1);
  EXPECT_EQ(sums_for(2 * kSumBytesMin), 2);
  EXPECT_EQ(sums_for(100 * kSumBytesMin), kSumsMax);
}

// Products and sums of one of two shards, in order.
std::vector<std::string> done;

class NotedRegion final : public TpRegion {
 public:
  explicit NotedRegion(Overlap overlap) : overlap_(overlap) {}
  TensorShard shard() const override { return {0, 2}; }
  Overlap overlap() const override { return overlap_; }
  Status gather_rows(const RegionRows& rows, Pass) override {
    return rows.parts == 1 ? Status() : note("gather");
  }
  Status sum_rows(const RegionRows&, Pass) override { return note("sum"); }
  void start_sum_rows(const RegionRows& rows) override {
    (void)note("start " + std::to_string(rows.count / 256));
  }
  Status finish(Pass) override { return note("finish"); }
  Status max(float*, int64_t) override { return {}; }
  Status sum(float*, int64_t) override { return {}; }
  Status gather(kernels::ConstView, kernels::View, int64_t) override { return {}; }

 private:
  static Status note(std::string what) {
    done.push_back(std::move(what));
    return {};
  }
  Overlap overlap_;
};

kernels::OpTable noted_products() {
  kernels::OpTable ops = kernels::cpu_ops();
  ops.matmul_forward = [](kernels::Stream& stream, const kernels::MatmulForward& args) {
    done.push_back("y");
    kernels::cpu_ops().matmul_forward(stream, args);
  };
  ops.matmul_backward = [](kernels::Stream& stream, const kernels::MatmulBackward& args) {
    const bool has_both = args.dx && args.dweight;
    done.push_back(has_both ? "dx dw" : args.dx ? "dx" : "dw");
    kernels::cpu_ops().matmul_backward(stream, args);
  };
  return ops;
}

using Steps = std::vector<std::string>;

// Returns what a shard does for one layer: forward, then backward.
std::pair<Steps, Steps> steps_of_layer(Overlap overlap, const GptOptions& options) {
  kernels::Stream stream;
  NotedRegion region(overlap);
  const kernels::OpTable ops = noted_products();
  Gpt model = Gpt::create(options, ops, stream, region).value();
  ArenaStore store(options.config, options.stage, region.shard());
  store.initialise(region.shard(), 1);
  ArenaSink sink(store.arena());
  const Text text(options.config, 4, options.config.context, 5);
  GptBatch batch = model.make_micro_batch({text.batch, text.sequence}).value();
  EXPECT_TRUE(batch.begin(text.input()).ok());
  const BlockUse use{.block = 1};
  done.clear();
  EXPECT_TRUE(batch.forward(1, store.get(use).value()).ok());
  const Steps forward = std::exchange(done, {});
  EXPECT_TRUE(batch.backward(1, store.get(use).value(), sink).ok());
  return {forward, std::exchange(done, {})};
}

TEST(Sums, TravelWhileTheNextChunkAndTheGradientsOfWeightsAreComputed) {
  const ModelConfig config = wide(kTiny);
  const auto [forward, backward] =
      steps_of_layer(Overlap::kChunks, {.config = config, .stage = whole_model(config)});
  const Steps last = {"y", "start 330", "y", "start 330", "finish"};
  Steps expected = {"y"};
  expected.insert(expected.end(), last.begin(), last.end());
  expected.push_back("y");
  expected.insert(expected.end(), last.begin(), last.end());
  EXPECT_EQ(forward, expected);
  const Steps half = {"dx dw", "dx", "start 330", "dx", "start 330", "dw", "finish"};
  expected = half;
  expected.insert(expected.end(), half.begin(), half.end());
  EXPECT_EQ(backward, expected);
}

TEST(Sums, TravelWhileTheNextChunkIsComputedIfWeightsComeLater) {
  const ModelConfig config = wide(kTiny);
  const auto [forward, backward] = steps_of_layer(
      Overlap::kChunks, {.config = config, .stage = whole_model(config), .splits_backward = true});
  EXPECT_EQ(backward, Steps({"dx", "dx", "start 330", "dx", "start 330", "finish", "dx", "dx",
                             "start 330", "dx", "start 330", "finish"}));
}

TEST(Sums, AreInOnePieceWhereChunksDoNotPay) {
  const ModelConfig config = wide(kTiny);
  const GptOptions options{.config = config, .stage = whole_model(config)};
  const auto [forward, backward] = steps_of_layer(Overlap::kWeights, options);
  EXPECT_EQ(forward, Steps({"y", "y", "sum", "y", "y", "sum"}));
  EXPECT_EQ(backward, Steps({"dx dw", "dx", "start 660", "dw", "finish", "dx dw", "dx", "start 660",
                             "dw", "finish"}));
  EXPECT_EQ(steps_of_layer(Overlap::kNone, options).second,
            Steps({"dx dw", "dx dw", "sum", "dx dw", "dx dw", "sum"}));
}

TEST(SplitModel, IsRefusedIfTheShardsCannotDivideTheContext) {
  ModelConfig config = kTiny;
  config.context = 7;
  kernels::Stream stream;
  ThreadRegion::Shared shared;
  ThreadRegion region(shared, 0);
  const auto model =
      Gpt::create({.config = config, .stage = whole_model(config), .sequence_parallel = true},
                  kernels::cpu_ops(), stream, region);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().message, "[model] expected a context that 2 shards divide, got 7");
}

}  // namespace
}  // namespace lockstep::model
