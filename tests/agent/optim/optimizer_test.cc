#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "agent/optim/adamw_optimizer.h"
#include "agent/optim/clip.h"
#include "common/base/random.h"

namespace lockstep::optim {
namespace {

const ModelConfig kTiny{2, 16, 2, 8, 17};

std::vector<float> random_values(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.normal();
  return values;
}

double sum_of_squares(const std::vector<float>& values, const ArenaEntry& entry) {
  double sum = 0;
  for (int64_t i = 0; i < entry.count; ++i) {
    const double value = values[static_cast<size_t>(entry.offset + i)];
    sum += value * value;
  }
  return sum;
}

TEST(AdamWOptimizer, FollowsTheFormulaAndDecaysMatricesAlone) {
  const ParameterArena arena = parameter_arena(kTiny, whole_model(kTiny));
  std::vector<float> parameters = random_values(arena.count, 1);
  std::vector<float> gradients(parameters.size());
  const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  Result<AdamWOptimizer> optimizer = AdamWOptimizer::create(
      kTiny, arena, {.parameters = parameters.data(), .gradients = gradients.data()}, options, {},
      kernels::cpu_ops());
  ASSERT_TRUE(optimizer.ok());

  std::vector<double> expected(parameters.begin(), parameters.end());
  std::vector<double> m(parameters.size());
  std::vector<double> v(parameters.size());
  const std::vector<Parameter> table = parameter_table(kTiny);
  kernels::Stream stream;
  for (int64_t step = 1; step <= 5; ++step) {
    const auto drawn = random_values(arena.count, 10 + static_cast<uint64_t>(step));
    std::copy(drawn.begin(), drawn.end(), gradients.begin());
    optimizer->step(stream, {.learning_rate = 1e-2, .gradient_scale = 0.5f, .step = step});
    for (const ArenaEntry& entry : arena.entries) {
      const double decay = table[static_cast<size_t>(entry.id)].rank == 2 ? 0.1 : 0.0;
      for (int64_t k = 0; k < entry.count; ++k) {
        const auto i = static_cast<size_t>(entry.offset + k);
        const double g = 0.5 * gradients[i];
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.95 * v[i] + 0.05 * g * g;
        const double mean = m[i] / (1 - std::pow(0.9, static_cast<double>(step)));
        const double square = v[i] / (1 - std::pow(0.95, static_cast<double>(step)));
        expected[i] -= 1e-2 * (mean / (std::sqrt(square) + 1e-8) + decay * expected[i]);
      }
    }
  }
  for (const ArenaEntry& entry : arena.entries) {
    for (int64_t k = 0; k < entry.count; ++k) {
      const auto i = static_cast<size_t>(entry.offset + k);
      ASSERT_NEAR(parameters[i], expected[i], 2e-6) << "parameter " << entry.id << " at " << k;
      ASSERT_NEAR(optimizer->first_moments()[i], m[i], 1e-6);
      ASSERT_NEAR(optimizer->second_moments()[i], v[i], 1e-6);
    }
  }
}

TEST(AdamWOptimizer, WritesTheCopiesThatProductsRead) {
  const ParameterArena arena = parameter_arena(kTiny, whole_model(kTiny));
  std::vector<float> parameters = random_values(arena.count, 1);
  const std::vector<float> gradients = random_values(arena.count, 2);
  std::vector<kernels::Bf16> copies(parameters.size());
  Result<AdamWOptimizer> optimizer = AdamWOptimizer::create(
      kTiny, arena,
      {.parameters = parameters.data(), .gradients = gradients.data(), .copies = copies.data()}, {},
      {}, kernels::cpu_ops());
  ASSERT_TRUE(optimizer.ok());
  kernels::Stream stream;
  optimizer->step(stream, {.learning_rate = 1e-2});
  std::vector<kernels::Bf16> expected(parameters.size());
  kernels::cpu_ops().cast(stream,
                          {.x = parameters.data(), .out = expected.data(), .count = arena.count});
  for (const ArenaEntry& entry : arena.entries) {
    for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
      ASSERT_EQ(copies[static_cast<size_t>(i)], expected[static_cast<size_t>(i)]);
    }
  }
}

TEST(GradientNorm, CountsShardedAndWholeParametersApart) {
  const TensorShard shard{1, 2};
  const ParameterArena arena = parameter_arena(kTiny, whole_model(kTiny), shard);
  const std::vector<float> gradients = random_values(arena.count, 3);
  Result<GradientNorm> norm =
      GradientNorm::create(kTiny, arena, gradients.data(), kernels::Device{}, kernels::cpu_ops());
  ASSERT_TRUE(norm.ok());
  double sharded = 0;
  double whole = 0;
  const std::vector<Parameter> table = parameter_table(kTiny);
  for (const ArenaEntry& entry : arena.entries) {
    const bool split = table[static_cast<size_t>(entry.id)].shard_axis >= 0;
    (split ? sharded : whole) += sum_of_squares(gradients, entry);
  }
  kernels::Stream stream;
  std::array<double, 2> squares{};
  norm->squared(stream, squares.data());
  EXPECT_NEAR(squares[0], sharded, 1e-9 * sharded);
  EXPECT_NEAR(squares[1], whole, 1e-9 * whole);
}

TEST(GradientNorm, CountsATiedEmbeddingOnTheStageWhereItLives) {
  const ParameterArena first = parameter_arena(kTiny, pipeline_stage(kTiny, 2, 0));
  const ParameterArena last = parameter_arena(kTiny, pipeline_stage(kTiny, 2, 1));
  kernels::Stream stream;
  const auto embedding_counts = [&](const ParameterArena& arena) {
    std::vector<float> gradients(static_cast<size_t>(arena.count));
    gradients[static_cast<size_t>(arena.find(kTokenEmbedding)->offset)] = 3.0f;
    Result<GradientNorm> norm =
        GradientNorm::create(kTiny, arena, gradients.data(), kernels::Device{}, kernels::cpu_ops());
    std::array<double, 2> squares{};
    norm->squared(stream, squares.data());
    return squares[0];
  };
  EXPECT_EQ(embedding_counts(first), 9.0);
  EXPECT_EQ(embedding_counts(last), 0.0);
}

}  // namespace
}  // namespace lockstep::optim
