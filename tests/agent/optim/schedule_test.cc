#include "agent/optim/schedule.h"

#include <gtest/gtest.h>

namespace lockstep::optim {
namespace {

TEST(ParseSchedule, KnowsTheNames) {
  EXPECT_EQ(*parse_schedule("constant"), ScheduleKind::kConstant);
  EXPECT_EQ(*parse_schedule("linear"), ScheduleKind::kLinear);
  EXPECT_EQ(*parse_schedule("cosine"), ScheduleKind::kCosine);
  EXPECT_EQ(*parse_schedule("warmupStableDecay"), ScheduleKind::kWarmupStableDecay);
  EXPECT_EQ(*parse_schedule("step"), ScheduleKind::kStep);
  const Result<ScheduleKind> unknown = parse_schedule("cosin");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, Code::kInvalid);
}

TEST(LearningRate, IsAsTheFormulaSays) {
  struct Case {
    ScheduleKind kind;
    int64_t warmup, step;
    double rate;
  };
  const std::vector<Case> cases{
      {ScheduleKind::kConstant, 0, 1, 1.0},
      {ScheduleKind::kConstant, 0, 110, 1.0},
      {ScheduleKind::kConstant, 10, 1, 0.1},
      {ScheduleKind::kConstant, 10, 10, 1.0},
      {ScheduleKind::kConstant, 10, 11, 1.0},
      {ScheduleKind::kLinear, 10, 5, 0.5},
      {ScheduleKind::kLinear, 10, 10, 1.0},
      {ScheduleKind::kLinear, 10, 35, 0.8},
      {ScheduleKind::kLinear, 10, 60, 0.6},
      {ScheduleKind::kLinear, 10, 110, 0.2},
      {ScheduleKind::kLinear, 10, 500, 0.2},
      {ScheduleKind::kCosine, 10, 10, 1.0},
      {ScheduleKind::kCosine, 10, 60, 0.6},
      {ScheduleKind::kCosine, 10, 110, 0.2},
      {ScheduleKind::kCosine, 10, 111, 0.2},
      {ScheduleKind::kCosine, 0, 55, 0.6},
      {ScheduleKind::kCosine, 110, 110, 1.0},
      {ScheduleKind::kCosine, 110, 111, 0.2},
      // 0.2 + 0.8 * (1 + cos(pi / 4)) / 2
      {ScheduleKind::kCosine, 10, 35, 0.8828427124746190},
  };
  for (const Case& c : cases) {
    const LearningRateSchedule schedule{
        .kind = c.kind, .peak = 1.0, .minimum = 0.2, .warmup_steps = c.warmup, .steps = 110};
    EXPECT_NEAR(learning_rate(schedule, c.step), c.rate, 1e-12)
        << "kind " << static_cast<int>(c.kind) << " warm-up " << c.warmup << " step " << c.step;
  }
}

TEST(LearningRate, IsStableUntilTheLastSteps) {
  const LearningRateSchedule schedule{.kind = ScheduleKind::kWarmupStableDecay,
                                      .peak = 1,
                                      .minimum = 0.2,
                                      .warmup_steps = 10,
                                      .steps = 110,
                                      .decay_steps = 40};
  const std::vector<std::pair<int64_t, double>> cases{{5, 0.5},  {10, 1},   {11, 1},    {70, 1},
                                                      {80, 0.8}, {90, 0.6}, {110, 0.2}, {111, 0.2}};
  for (const auto& [step, rate] : cases) {
    EXPECT_NEAR(learning_rate(schedule, step), rate, 1e-12) << step;
  }
}

TEST(LearningRate, FallsAfterEachMilestone) {
  const LearningRateSchedule schedule{.kind = ScheduleKind::kStep,
                                      .peak = 1,
                                      .minimum = 0.02,
                                      .warmup_steps = 10,
                                      .steps = 110,
                                      .milestones = {30, 60, 90},
                                      .factor = 0.25};
  const std::vector<std::pair<int64_t, double>> cases{{5, 0.5},     {11, 1},    {30, 1},
                                                      {31, 0.25},   {60, 0.25}, {61, 0.0625},
                                                      {90, 0.0625}, {91, 0.02}, {110, 0.02}};
  for (const auto& [step, rate] : cases) {
    EXPECT_NEAR(learning_rate(schedule, step), rate, 1e-12) << step;
  }
}

TEST(LearningRate, FallsFromTheEndOfTheWarmUpOn) {
  for (const ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    const LearningRateSchedule schedule{
        .kind = kind, .peak = 6e-4, .minimum = 6e-5, .warmup_steps = 7, .steps = 100};
    for (int64_t step = 1; step < 100; ++step) {
      if (step < 7) {
        EXPECT_LT(learning_rate(schedule, step), learning_rate(schedule, step + 1));
      } else {
        EXPECT_GT(learning_rate(schedule, step), learning_rate(schedule, step + 1));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::optim
