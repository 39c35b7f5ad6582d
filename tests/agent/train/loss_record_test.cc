#include "agent/train/loss_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Losses around 2, by 0.1.
LossRecord usual(int64_t losses) {
  LossRecord record;
  for (int64_t i = 0; i < losses; ++i) add_loss(record, i % 2 == 0 ? 1.9 : 2.1);
  return record;
}

TEST(LossRecord, HasTheMeanAndTheDeviationOfTheLastLosses) {
  LossRecord record = usual(kLossesAveraged);
  EXPECT_EQ(record.losses, kLossesAveraged);
  EXPECT_NEAR(record.mean, 2, 1e-9);
  EXPECT_NEAR(record.variance, 0.01, 1e-9);
  for (int i = 0; i < 200; ++i) add_loss(record, 5);
  EXPECT_NEAR(record.mean, 5, 1e-3) << "older losses fade";
  EXPECT_LT(record.variance, 1e-2);
}

TEST(LossRecord, JudgesALossByItsDistanceFromTheMean) {
  const LossRules rules{.spike = kFailAction, .deviations = 5};
  const LossRecord record = usual(100);
  EXPECT_NEAR(spike_threshold(record, rules), 2.5, 0.05);
  EXPECT_EQ(judge(record, rules, 2.4, 1), LossVerdict::kGood);
  EXPECT_EQ(judge(record, rules, 2.6, 1), LossVerdict::kSpike);
  EXPECT_EQ(judge(record, rules, -100, 1), LossVerdict::kGood) << "a fall is no spike";
  EXPECT_EQ(judge(usual(99), rules, 100, 1), LossVerdict::kGood) << "too few losses to compare";
  EXPECT_EQ(judge(record, {}, 100, 1), LossVerdict::kGood) << "no rule is about spikes";
}

TEST(LossRecord, NeedsMoreThanTheNoiseOfRoundingForASpike) {
  LossRecord constant;
  for (int i = 0; i < 200; ++i) add_loss(constant, 4);
  const LossRules rules{.spike = kFailAction, .deviations = 5};
  EXPECT_EQ(judge(constant, rules, 4.19, 1), LossVerdict::kGood);
  EXPECT_EQ(judge(constant, rules, 4.21, 1), LossVerdict::kSpike) << "5 times 1 % of the mean";
}

TEST(LossRecord, FindsLossesAndNormsThatAreNotFinite) {
  for (const double bad : {std::nan(""), kInfinity, -kInfinity}) {
    EXPECT_EQ(judge({}, {}, bad, 1), LossVerdict::kNotFinite);
    EXPECT_EQ(judge({}, {}, 1, bad), LossVerdict::kNotFinite);
  }
}

TEST(LossRecord, TellsTheFirstStepThatUpdates) {
  LossRecord record;
  EXPECT_EQ(first_update(record), 1);
  ASSERT_TRUE(add_skip(record, {1, 1}));
  EXPECT_EQ(first_update(record), 2);
  ASSERT_TRUE(add_skip(record, {2, 4}));
  EXPECT_EQ(first_update(record), 5);
  ASSERT_TRUE(add_skip(record, {7, 7}));
  EXPECT_EQ(first_update(record), 5);
}

TEST(LossRecord, TakesABoundedNumberOfSkips) {
  LossRecord record;
  for (int64_t i = 0; i < LossRecord::kSkipsMax; ++i) EXPECT_TRUE(add_skip(record, {i, i}));
  EXPECT_FALSE(add_skip(record, {99, 99}));
  EXPECT_EQ(record.skipped.back(), (SkippedSteps{15, 15}));
}

}  // namespace
}  // namespace lockstep::train
