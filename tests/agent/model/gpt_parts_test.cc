#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "agent/model/gpt.h"
#include "tests/agent/model/tiny_gpt.h"

namespace lockstep {
namespace {

using testing::ArenaSink;
using testing::ArenaStore;
using testing::Text;
using testing::TinyGpt;

const ModelConfig kTiny{3, 16, 4, 8, 17};

TEST(GptStages, TogetherAreTheWholeModel) {
  const Text text(kTiny, 4, 8, 5);
  TinyGpt whole(kTiny, {4, 8});
  whole.sink.begin_step();
  const double loss = whole.forward_backward(text.input());

  struct Part {
    Gpt model;
    ArenaStore store;
    ArenaSink sink;
    MicroBatch batch;
  };
  Stream stream;
  WholeTensor no_shards;
  std::vector<std::unique_ptr<Part>> parts;
  for (int64_t index = 0; index < 3; ++index) {
    const Stage stage = pipeline_stage(kTiny, 3, index);
    Gpt model = Gpt::create({kTiny, stage}, cpu_ops(), stream, no_shards).value();
    ArenaStore store(kTiny, stage);
    store.initialise({}, 1);
    MicroBatch batch = model.make_micro_batch({4, 8}).value();
    parts.push_back(std::unique_ptr<Part>(new Part{std::move(model), std::move(store),
                                                   ArenaSink(parameter_arena(kTiny, stage)),
                                                   std::move(batch)}));
  }
  const auto stream_count = static_cast<size_t>(text.rows() * kTiny.width);
  for (size_t i = 0; i < parts.size(); ++i) {
    Part& part = *parts[i];
    ASSERT_TRUE(part.model.begin(part.batch, text.input()).ok());
    if (i > 0) {
      std::copy_n(parts[i - 1]->batch.stage_output(), stream_count, part.batch.stage_input());
    }
    ASSERT_TRUE(forward_pass(part.model, part.store, part.batch).ok());
  }
  EXPECT_NEAR(loss_sum(parts.back()->model, parts.back()->batch).value(), loss, 1e-6 * loss);
  for (size_t i = parts.size(); i-- > 0;) {
    Part& part = *parts[i];
    if (i + 1 < parts.size()) {
      std::copy_n(parts[i + 1]->model.stage_gradient(), stream_count, part.model.stage_gradient());
    }
    ASSERT_TRUE(backward_pass(part.model, part.store, part.batch, part.sink).ok());
    EXPECT_EQ(part.sink.ready_ids().size(), part.store.arena().entries.size());
    EXPECT_TRUE(std::is_sorted(part.sink.ready_ids().rbegin(), part.sink.ready_ids().rend()));
  }
  for (const Parameter& parameter : parameter_table(kTiny)) {
    std::vector<float> sum(static_cast<size_t>(parameter.count()));
    for (const std::unique_ptr<Part>& part : parts) {
      if (part->store.arena().find(parameter.id) == nullptr) continue;
      const std::span<float> gradient = part->sink.of(parameter.id);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    const std::span<float> expected = whole.sink.of(parameter.id);
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_NEAR(sum[i], expected[i], 1e-7) << parameter.name << " at " << i;
    }
  }
}

// Two shards as two threads, which add up in the order of their indices.
class ThreadRegion final : public TpRegion {
 public:
  struct Shared {
    std::barrier<> barrier{2};
    std::array<float*, 2> data{};
    std::vector<float> result;
  };
  ThreadRegion(Shared& shared, int64_t index) : shared_(shared), index_(index) {}

  TensorShard shard() const override { return {index_, 2}; }
  Status enter(float* gradient, int64_t count) override { return sum(gradient, count); }
  Status leave(float* output, int64_t count) override { return sum(output, count); }
  Status sum(float* values, int64_t count) override {
    return reduce(values, count, [](float a, float b) { return a + b; });
  }
  Status max(float* values, int64_t count) override {
    return reduce(values, count, [](float a, float b) { return std::max(a, b); });
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
};

// The gradients and losses of one shard.
struct ShardOutcome {
  double loss = 0;
  ParameterArena arena;
  std::vector<float> gradients;
};

ShardOutcome run_shard(ThreadRegion::Shared& shared, int64_t index, const Text& text) {
  Stream stream;
  ThreadRegion region(shared, index);
  Gpt model = Gpt::create({kTiny, whole_model(kTiny)}, cpu_ops(), stream, region).value();
  ArenaStore store(kTiny, whole_model(kTiny), region.shard());
  store.initialise(region.shard(), 1);
  ArenaSink sink(store.arena());
  MicroBatch batch = model.make_micro_batch({text.batch, text.sequence}).value();
  EXPECT_TRUE(model.begin(batch, text.input()).ok());
  EXPECT_TRUE(forward_pass(model, store, batch).ok());
  const double loss = loss_sum(model, batch).value();
  EXPECT_TRUE(backward_pass(model, store, batch, sink).ok());
  return {loss, store.arena(), sink.gradients()};
}

TEST(GptShards, TogetherAreTheWholeModel) {
  const Text text(kTiny, 4, 8, 5);
  TinyGpt whole(kTiny, {4, 8});
  whole.sink.begin_step();
  const double loss = whole.forward_backward(text.input());

  ThreadRegion::Shared shared;
  std::array<ShardOutcome, 2> shards;
  {
    std::jthread peer([&] { shards[1] = run_shard(shared, 1, text); });
    shards[0] = run_shard(shared, 0, text);
  }
  for (int64_t index = 0; index < 2; ++index) {
    const ShardOutcome& shard = shards[static_cast<size_t>(index)];
    EXPECT_NEAR(shard.loss, loss, 1e-6 * loss);
    for (const Parameter& parameter : parameter_table(kTiny)) {
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

}  // namespace
}  // namespace lockstep
