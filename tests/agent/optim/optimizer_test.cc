#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "agent/optim/optimizer.h"
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

TEST(Optimizer, FollowsTheFormulaOfAdamWAndDecaysMatricesAlone) {
  const ParameterArena arena = parameter_arena(kTiny, whole_model(kTiny));
  std::vector<float> parameters = random_values(arena.count, 1);
  std::vector<float> gradients(parameters.size());
  const OptimizerOptions options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  Result<Optimizer> optimizer = Optimizer::create(
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
      ASSERT_NEAR(optimizer->states()[0].values[i], m[i], 1e-6);
      ASSERT_NEAR(optimizer->states()[1].values[i], v[i], 1e-6);
    }
  }
}

TEST(Optimizer, KeepsAMovingAverageThatBeginsWithTheFirstUpdate) {
  const ParameterArena arena = parameter_arena(kTiny, whole_model(kTiny));
  for (const OptimizerKind kind :
       {OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kAdagrad}) {
    std::vector<float> parameters = random_values(arena.count, 1);
    std::vector<float> gradients(parameters.size());
    const OptimizerOptions options{.kind = kind, .average_decay = 0.8};
    Result<Optimizer> optimizer = Optimizer::create(
        kTiny, arena, {.parameters = parameters.data(), .gradients = gradients.data()}, options, {},
        kernels::cpu_ops());
    ASSERT_TRUE(optimizer.ok());
    EXPECT_STREQ(optimizer->states().back().name, "ema");
    std::vector<double> expected(parameters.size());
    kernels::Stream stream;
    constexpr int64_t kFirst = 3;  // the steps before it updated nothing
    for (int64_t step = kFirst; step <= 6; ++step) {
      const auto drawn = random_values(arena.count, 10 + static_cast<uint64_t>(step));
      std::copy(drawn.begin(), drawn.end(), gradients.begin());
      optimizer->step(stream, {.learning_rate = 1e-2, .step = step, .first_update = kFirst});
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] += (step == kFirst ? 1 : 0.2) * (parameters[i] - expected[i]);
      }
    }
    for (const ArenaEntry& entry : arena.entries) {
      for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
        ASSERT_NEAR(optimizer->states().back().values[i], expected[static_cast<size_t>(i)], 2e-6);
      }
    }
  }
}

TEST(Optimizer, WritesTheCopiesThatProductsRead) {
  const ParameterArena arena = parameter_arena(kTiny, whole_model(kTiny));
  std::vector<float> parameters = random_values(arena.count, 1);
  std::vector<float> gradients = random_values(arena.count, 2);
  std::vector<kernels::Bf16> copies(parameters.size());
  Result<Optimizer> optimizer = Optimizer::create(
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

}  // namespace
}  // namespace lockstep::optim
