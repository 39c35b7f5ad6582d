#include "agent/model/init.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/device/parallel.h"
#include "tests/agent/model/initialise_arena.h"

namespace lockstep::model {
namespace {

const ModelConfig kConfig{3, 64, 4, 32, 257};

std::vector<float> values_of(const Stage& stage, const TensorShard& shard, uint64_t seed = 1) {
  const ParameterArena arena = parameter_arena(kConfig, stage, shard);
  std::vector<float> values(static_cast<size_t>(arena.count), 7.0f);
  initialise_arena(kConfig, arena, shard, seed, values.data());
  return values;
}

TEST(Initialise, HasTheDeviationsOfGpt2) {
  const ParameterArena arena = parameter_arena(kConfig, whole_model(kConfig));
  const std::vector<float> values = values_of(whole_model(kConfig), {});
  for (const Parameter& parameter : parameter_table(kConfig)) {
    const ArenaEntry& entry = *arena.find(parameter.id);
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < entry.count; ++i) {
      const auto value = static_cast<double>(values[static_cast<size_t>(entry.offset + i)]);
      sum += value;
      squares += value * value;
    }
    const auto count = static_cast<double>(entry.count);
    const double mean = sum / count;
    const double deviation = std::sqrt(squares / count - mean * mean);
    double expected_deviation = 0;
    if (parameter.init == Init::kNormal) expected_deviation = 0.02;
    if (parameter.init == Init::kResidualNormal) expected_deviation = 0.02 / std::sqrt(6.0);
    EXPECT_NEAR(deviation, expected_deviation, 0.05 * expected_deviation) << parameter.name;
    EXPECT_NEAR(mean, parameter.init == Init::kOne ? 1.0 : 0.0,
                4 * expected_deviation / std::sqrt(count))
        << parameter.name;
  }
}

// As nn.Linear: uniform in (-1, 1) / sqrt(fan_in), the same in whatever pieces it is drawn.
TEST(Initialise, DrawsAnMlpUniformly) {
  const MlpConfig mlp{.inputs = 100, .hidden = {64}, .outputs = 3};
  const ModelDesign design = mlp;
  const ParameterArena arena = parameter_arena(design, whole_model(design));
  std::vector<float> values(static_cast<size_t>(arena.count));
  initialise_arena(design, arena, {}, 1, values.data());
  for (const Parameter& parameter : parameter_table(mlp)) {
    const ArenaEntry& entry = *arena.find(parameter.id);
    const std::span drawn(values.data() + entry.offset, static_cast<size_t>(entry.count));
    const double bound = 1 / std::sqrt(static_cast<double>(parameter.fan_in));
    double squares = 0;
    for (const float value : drawn) {
      EXPECT_LE(std::abs(static_cast<double>(value)), bound * (1 + 1e-6)) << parameter.name;
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (entry.count > 1000) {
      EXPECT_NEAR(squares / static_cast<double>(entry.count), bound * bound / 3,
                  0.05 * bound * bound);
    }
    std::vector<float> last(1);
    initialise({.parameter = parameter, .entry = entry, .shard = {}, .seed = 1}, entry.count - 1,
               last);
    EXPECT_EQ(last[0], drawn.back()) << parameter.name;
  }
}

TEST(Initialise, DoesNotDependOnTheMesh) {
  const ParameterArena whole_arena = parameter_arena(kConfig, whole_model(kConfig));
  const std::vector<float> whole = values_of(whole_model(kConfig), {});
  for (const int64_t size : {2, 4}) {
    for (int64_t index = 0; index < size; ++index) {
      const TensorShard shard{index, size};
      const Stage stage = pipeline_stage(kConfig, 3, index % 3);
      const ParameterArena arena = parameter_arena(kConfig, stage, shard);
      const std::vector<float> values = values_of(stage, shard);
      const std::vector<Parameter> table = parameter_table(kConfig);
      for (const ArenaEntry& entry : arena.entries) {
        const Parameter& parameter = table[static_cast<size_t>(entry.id)];
        const int64_t offset = whole_arena.find(entry.id)->offset;
        for (const ShardRun& run : shard_runs(parameter, entry, shard)) {
          for (int64_t i = 0; i < run.count; ++i) {
            ASSERT_EQ(values[static_cast<size_t>(entry.offset + run.local + i)],
                      whole[static_cast<size_t>(offset + run.global + i)])
                << parameter.name;
          }
        }
      }
    }
  }
}

TEST(Initialise, DoesNotDependOnThreads) {
  const std::vector<float> one = values_of(whole_model(kConfig), {});
  kernels::set_threads(2);
  const std::vector<float> two = values_of(whole_model(kConfig), {});
  kernels::set_threads(1);
  EXPECT_EQ(one, two);
}

TEST(Initialise, FollowsTheSeed) {
  EXPECT_EQ(values_of(whole_model(kConfig), {}, 2), values_of(whole_model(kConfig), {}, 2));
  EXPECT_NE(values_of(whole_model(kConfig), {}, 1), values_of(whole_model(kConfig), {}, 2));
}

}  // namespace
}  // namespace lockstep::model
