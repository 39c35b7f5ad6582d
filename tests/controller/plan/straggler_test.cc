#include "controller/plan/straggler.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

// Computes for as long in a step of 1 s; a tenth of it is data.
WorkerSpeed computing(double seconds) {
  return {.step_seconds = 1,
          .data_seconds = 0.1 * seconds,
          .forward_seconds = 0.3 * seconds,
          .backward_seconds = 0.5 * seconds,
          .update_seconds = 0.1 * seconds};
}

std::vector<WorkerState> ranks_with(const std::vector<double>& seconds) {
  std::vector<WorkerState> ranks;
  for (size_t i = 0; i < seconds.size(); ++i) {
    ranks.push_back({.rank = static_cast<int64_t>(i)});
    if (seconds[i] > 0) ranks.back().speed = computing(seconds[i]);
  }
  return ranks;
}

// The ranks that are slow, the slowest first.
std::vector<int64_t> slow_of(const std::vector<double>& seconds, const Mesh& mesh) {
  const std::vector<WorkerState> states = ranks_with(seconds);
  RankStates ranks;
  for (const WorkerState& state : states) ranks.push_back(&state);
  std::vector<int64_t> slow;
  for (const SlowRank& one : find_slow(ranks, mesh, 1.5)) slow.push_back(one.rank);
  return slow;
}

using Ranks = std::vector<int64_t>;

TEST(FindSlow, ComparesRanksThatComputeTheSame) {
  EXPECT_EQ(slow_of({0.4, 0.8}, {.data = 2}), Ranks{1});
  EXPECT_EQ(slow_of({0.4, 0.55}, {.data = 2}), Ranks()) << "not by half";
  EXPECT_EQ(slow_of({0.4, 0.4, 0.4, 0.8}, {.data = 4}), Ranks{3});
  EXPECT_EQ(slow_of({0.8, 0.8, 0.8, 0.3}, {.data = 4}), Ranks()) << "one is faster";
  EXPECT_EQ(slow_of({0.4, 0.4, 0.4, 0.8}, {.data = 2, .tensor = 2}), Ranks{3});
  EXPECT_EQ(slow_of({0.3, 0.3, 0.9, 0.9}, {.pipeline = 2, .data = 2}), Ranks()) << "stages differ";
  EXPECT_EQ(slow_of({0.3, 0.3, 0.4, 0.9}, {.pipeline = 2, .data = 2}), Ranks{3});
  EXPECT_EQ(slow_of({0.3, 0.7, 0.3, 0.3}, {.pipeline = 4}), Ranks()) << "none has a peer";
  EXPECT_EQ(slow_of({0.5}, {}), Ranks()) << "it is alone";
}

TEST(FindSlow, NamesTheSlowestOfSeveralFirst) {
  EXPECT_EQ(slow_of({0.3, 0.5, 0.8, 0.3, 0.3}, {.data = 5}), (Ranks{2, 1}));
}

TEST(FindSlow, WaitsForAllSpeeds) {
  EXPECT_EQ(slow_of({0.3, 0.8, 0, 0.3}, {.data = 4}), Ranks());
  const WorkerState state{.rank = 0, .speed = computing(1)};
  EXPECT_TRUE(find_slow({&state, nullptr}, {.data = 2}, 1.5).empty());
  EXPECT_TRUE(find_slow({&state}, {.data = 2}, 1.5).empty()) << "another world";
}

TEST(FindSlow, LeavesOutWhatHardlyDelaysAStep) {
  EXPECT_EQ(slow_of({0.05, 0.14}, {.data = 2}), Ranks()) << "less than a tenth of the step";
  EXPECT_EQ(slow_of({0.05, 0.16}, {.data = 2}), Ranks{1});
}

TEST(FindSlow, TellsThePartAndTheNumbers) {
  std::vector<WorkerState> states = ranks_with({0.4, 0.4, 0.4});
  states[2].speed->data_seconds += 0.6;
  const auto slow = find_slow({&states[0], &states[1], &states[2]}, {.data = 3}, 1.5);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].slowest, "data");
  EXPECT_DOUBLE_EQ(slow[0].ratio, 2.5);
  EXPECT_DOUBLE_EQ(slow[0].seconds, 1);
  EXPECT_DOUBLE_EQ(slow[0].usual, 0.4);
}

class StragglingTest : public testing::Test {
 protected:
  StragglingTest() : scene_(3) {
    scene_.train();
    scene_.settle();
  }

  // The agents report these; the status is written.
  void report(const std::vector<double>& seconds) {
    for (size_t i = 0; i < seconds.size(); ++i) {
      scene_.agent(static_cast<int64_t>(i)).workers[0].speed = computing(seconds[i]);
    }
    scene_.settle();
  }
  const Condition* condition() { return find_condition(scene_.status(), kStraggling); }
  void advance(Duration time) {
    scene_.advance(time);
    for (auto& [pod, view] : scene_.seen.agents) view.last_heard = scene_.now;
    scene_.settle();
  }

  Scene scene_;
};

TEST_F(StragglingTest, BeginsAtOneAndAHalfTimesAndEndsBelowOneAndAQuarter) {
  report({0.4, 0.4, 0.5});
  EXPECT_EQ(condition(), nullptr);
  report({0.4, 0.4, 0.8});
  ASSERT_NE(condition(), nullptr);
  EXPECT_EQ(condition()->status, "True");
  EXPECT_EQ(condition()->reason, "RankSlow");
  EXPECT_NE(condition()->message.find("rank 2 on "), std::string::npos) << condition()->message;
  EXPECT_NE(condition()->message.find("takes 2.0 times as long as its peers"), std::string::npos);
  EXPECT_NE(condition()->message.find("in backward"), std::string::npos);
  const std::string message = condition()->message;
  report({0.4, 0.4, 0.54});
  EXPECT_EQ(condition()->status, "True");
  EXPECT_EQ(condition()->message, message) << "its numbers would change all the time";
  report({0.4, 0.4, 0.45});
  EXPECT_EQ(condition()->status, "False");
  EXPECT_EQ(condition()->reason, "AsFastAsOthers");
}

// Servers have no steps.
TEST_F(StragglingTest, ComparesTheWorkersOfAJobWithServers) {
  scene_.seen.job.spec.parameterServers = ParameterServersSpec{.nodes = 1};
  scene_.seen.job.spec.nodes = 2;
  report({0.4, 0.8});
  ASSERT_NE(condition(), nullptr);
  EXPECT_NE(condition()->message.find("rank 1 on "), std::string::npos) << condition()->message;
}

TEST_F(StragglingTest, IsOnlyToldWithoutARule) {
  report({0.4, 0.8, 0.4});
  advance(std::chrono::hours(1));
  EXPECT_EQ(scene_.status().restarts, 0);
  EXPECT_EQ(condition()->status, "True");
}

TEST_F(StragglingTest, ReplacesThePodAfterAsLongAsTheRuleSays) {
  scene_.seen.job.spec.failure.rules = {
      {.event = "Straggler", .action = "RecreatePod", .after = "2m"}};
  report({0.4, 0.8, 0.4});
  const std::string message = condition()->message;
  advance(std::chrono::seconds(119));
  EXPECT_EQ(scene_.status().restarts, 0);
  advance(std::chrono::seconds(2));
  const TrainingJobStatus& status = scene_.status();
  ASSERT_TRUE(status.lastFailure);
  EXPECT_EQ(status.lastFailure->reason, "Straggler");
  EXPECT_EQ(status.lastFailure->rank, 1);
  EXPECT_EQ(status.lastFailure->nodeIndex, 1);
  EXPECT_EQ(status.lastFailure->action, "RecreatePod");
  EXPECT_EQ(status.lastFailure->message, message);
  EXPECT_EQ(status.members, "1,2,1");
  EXPECT_EQ(status.restarts, 1);
  EXPECT_EQ(condition()->status, "False");
}

TEST_F(StragglingTest, CountsAnewForAnotherRank) {
  scene_.seen.job.spec.failure.rules = {
      {.event = "Straggler", .action = "RestartInPlace", .after = "2m"}};
  report({0.4, 0.8, 0.4});
  advance(std::chrono::seconds(100));
  report({0.4, 0.4, 0.8});
  advance(std::chrono::seconds(100));
  EXPECT_EQ(scene_.status().restarts, 0);
  advance(std::chrono::seconds(21));
  EXPECT_EQ(scene_.status().restarts, 1);
  EXPECT_EQ(scene_.status().lastFailure->rank, 2);
}

TEST_F(StragglingTest, StaysWithItsRankWhileAnotherOneIsSlowToo) {
  report({0.4, 0.8, 0.4});
  const Condition before = *condition();
  report({0.4, 0.8, 0.55});
  report({0.3, 0.55, 0.3});
  EXPECT_EQ(*condition(), before);
  report({0.4, 0.4, 0.52});
  EXPECT_EQ(condition()->status, "False") << "1.3 times is not enough to begin with";
}

TEST_F(StragglingTest, IsNotOverBecauseAReportIsMissing) {
  report({0.4, 0.8, 0.4});
  const Condition before = *condition();
  scene_.agent(0).workers[0].speed.reset();
  scene_.settle();
  EXPECT_EQ(*condition(), before);
}

// The next round may give the rank's number to another node.
TEST_F(StragglingTest, IsOverWhenTheJobGrows) {
  report({0.4, 0.8, 0.4});
  ASSERT_EQ(condition()->status, "True");
  scene_.seen.job.spec.nodes = 4;
  scene_.settle();
  scene_.add_pod(3);
  scene_.settle();
  ASSERT_EQ(scene_.status().round, 2);
  EXPECT_EQ(condition()->status, "False");
  EXPECT_EQ(condition()->reason, "RoundEnded");
}

TEST_F(StragglingTest, TakesNoRestartThatIsNotLeft) {
  FailureSpec& spec = scene_.seen.job.spec.failure;
  spec.rules = {{.event = "Straggler", .action = "RecreatePod", .after = "2m"}};
  spec.maxRestarts = 0;
  report({0.4, 0.8, 0.4});
  advance(std::chrono::seconds(130));
  EXPECT_FALSE(is_true(scene_.status(), kFailed));
  spec.rules[0].action = "Fail";
  advance(std::chrono::seconds(1));
  EXPECT_TRUE(is_true(scene_.status(), kFailed));
  EXPECT_EQ(condition()->status, "False");
}

TEST_F(StragglingTest, ExpectsMoreOfALargerShareOfAnUnevenBatch) {
  TrainingJobSpec& spec = scene_.seen.job.spec;
  spec.train->batch = {.global = 4, .micro = 1};
  spec.elastic = {.min = 1, .max = 3};
  spec.checkpoint.memory.emplace();
  report({0.8, 0.4, 0.4});
  EXPECT_EQ(condition(), nullptr) << "2 samples, and 1 each of the others";
  report({1.3, 0.4, 0.4});
  ASSERT_NE(condition(), nullptr);
}

}  // namespace
}  // namespace lockstep::plan
