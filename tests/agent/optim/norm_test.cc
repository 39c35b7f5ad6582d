// The norm of the gradients has the same bits however the model is split.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "agent/optim/clip.h"
#include "common/base/random.h"

namespace lockstep::optim {
namespace {

const ModelConfig kGpt2{2, 32, 8, 8, 100};
const ModelConfig kUntied{.layers = 2,
                          .width = 64,
                          .heads = 16,
                          .context = 8,
                          .vocabulary = 300,
                          .family = Family::kLlama,
                          .hidden = 96,
                          .tied = false,
                          .kv_heads = 8};

// The gradient of an element of the model: from huge to tiny, so that an order of additions would
// show.
float gradient_of(int64_t id, int64_t element) {
  Random random(static_cast<uint64_t>(id * 1'000'000 + element));
  return std::ldexp(random.normal(), static_cast<int>(random.uniform() * 60) - 30);
}

// One rank's gradients. Padding rows and gaps have values that must not count.
std::vector<float> gradients_of(const ModelConfig& config, const ParameterArena& arena) {
  std::vector<float> gradients(static_cast<size_t>(arena.count), 7.0f);
  const std::vector<Parameter> table = parameter_table(config);
  for (const ArenaEntry& entry : arena.entries) {
    const Parameter& parameter = table[static_cast<size_t>(entry.id)];
    for (const ShardRun& run : shard_runs(parameter, entry, arena.shard)) {
      for (int64_t i = 0; i < run.count; ++i) {
        gradients[static_cast<size_t>(entry.offset + run.local + i)] =
            gradient_of(entry.id, run.global + i);
      }
    }
  }
  return gradients;
}

void add(kernels::SquareSum& to, const kernels::SquareSum& from) {
  int64_t words[2][kernels::kSquareWords];
  std::memcpy(words[0], &to, sizeof to);
  std::memcpy(words[1], &from, sizeof from);
  for (int i = 0; i < kernels::kSquareWords; ++i) words[0][i] += words[1][i];
  std::memcpy(&to, words[0], sizeof to);
}

double squares_of(const ModelConfig& config, int64_t stages, int64_t shards) {
  kernels::SquareSum sum;
  kernels::Stream stream;
  for (int64_t stage = 0; stage < stages; ++stage) {
    for (int64_t index = 0; index < shards; ++index) {
      const ParameterArena arena =
          parameter_arena(config, pipeline_stage(config, stages, stage), {index, shards});
      std::vector<float> gradients = gradients_of(config, arena);
      kernels::SquareSum mine;
      GradientNorm::create(config, arena, {.gradients = gradients.data()}, kernels::cpu_ops())
          .add_squares(stream, &mine);
      add(sum, mine);
    }
  }
  return kernels::value_of(sum);
}

TEST(GradientNorm, HasTheSameBitsInEveryLayout) {
  ModelConfig few_keys = kUntied;
  few_keys.kv_heads = 2;
  for (const ModelConfig& config : {kGpt2, kUntied, few_keys}) {
    double expected = 0;
    for (const Parameter& parameter : parameter_table(config)) {
      for (int64_t i = 0; i < parameter.count(); ++i) {
        expected += std::pow(static_cast<double>(gradient_of(parameter.id, i)), 2);
      }
    }
    const double whole = squares_of(config, 1, 1);
    EXPECT_NEAR(whole, expected, 1e-13 * expected);
    for (const int64_t stages : {1, 2}) {
      for (const int64_t shards : {1, 2, 4, 8}) {
        EXPECT_EQ(squares_of(config, stages, shards), whole) << stages << " x " << shards;
      }
    }
  }
}

TEST(GradientNorm, CountsATiedEmbeddingOnTheStageWhereItLives) {
  kernels::Stream stream;
  const auto embedding_counts = [&](int64_t stage) {
    const ParameterArena arena = parameter_arena(kGpt2, pipeline_stage(kGpt2, 2, stage));
    std::vector<float> gradients(static_cast<size_t>(arena.count));
    gradients[static_cast<size_t>(arena.find(kTokenEmbedding)->offset)] = 3.0f;
    kernels::SquareSum sum;
    GradientNorm::create(kGpt2, arena, {.gradients = gradients.data()}, kernels::cpu_ops())
        .add_squares(stream, &sum);
    return kernels::value_of(sum);
  };
  EXPECT_EQ(embedding_counts(0), 9.0);
  EXPECT_EQ(embedding_counts(1), 0.0);
}

}  // namespace
}  // namespace lockstep::optim
