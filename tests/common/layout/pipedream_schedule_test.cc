#include "common/layout/pipedream_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "common/layout/schedule_check.h"
#include "common/layout/schedule_time.h"

namespace lockstep {
namespace {

PipelineShape shape_of(int64_t stages, int64_t micro_batches, const VersionRules& versions = {}) {
  return {.kind = PipelineKind::kPipeDream,
          .stages = stages,
          .micro_batches = micro_batches,
          .versions = versions};
}

// The passes and updates: F3@1 is the forward of batch 3 with version 1.
std::string passes_with_versions(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    const char letter = action.kind == ActionKind::kForward    ? 'F'
                        : action.kind == ActionKind::kBackward ? 'B'
                        : action.kind == ActionKind::kUpdate   ? 'U'
                                                               : 0;
    if (letter == 0) continue;
    if (!text.empty()) text += ' ';
    text += letter + std::to_string(action.step);
    if (letter != 'U') text += '@' + std::to_string(action.version);
  }
  return text;
}

TEST(PipeDream, TrainsEachBatchWithTheVersionOfItsForward) {
  const PipelineSchedule schedule = pipedream_schedule(shape_of(3, 1), 1, 5);
  EXPECT_EQ(passes_with_versions(schedule[0]),
            "F1@0 F2@0 F3@0 B1@0 U1 F4@1 B2@0 U2 F5@2 B3@0 U3 B4@1 U4 B5@2 U5");
  EXPECT_EQ(passes_with_versions(schedule[1]),
            "F1@0 F2@0 B1@0 U1 F3@1 B2@0 U2 F4@2 B3@1 U3 F5@3 B4@2 U4 B5@3 U5");
  EXPECT_EQ(passes_with_versions(schedule[2]),
            "F1@0 B1@0 U1 F2@1 B2@1 U2 F3@2 B3@2 U3 F4@3 B4@3 U4 F5@4 B5@4 U5");
}

TEST(PipeDream, WithVerticalSyncUsesOneVersionOnAllStages) {
  const PipelineSchedule schedule = pipedream_schedule(shape_of(2, 1, {.is_vertical = true}), 1, 4);
  EXPECT_EQ(passes_with_versions(schedule[0]),
            "F1@0 F2@0 B1@0 U1 F3@1 B2@0 U2 F4@2 B3@1 U3 B4@2 U4");
  EXPECT_EQ(passes_with_versions(schedule[1]),
            "F1@0 B1@0 U1 F2@0 B2@0 U2 F3@1 B3@1 U3 F4@2 B4@2 U4");
}

TEST(PipeDream, WithoutStashingGoesBackwardWithTheLatestVersion) {
  const PipelineSchedule schedule = pipedream_schedule(shape_of(2, 1, {.stashes = false}), 1, 3);
  EXPECT_EQ(passes_with_versions(schedule[0]), "F1@0 F2@0 B1@0 U1 F3@1 B2@1 U2 B3@2 U3");
}

// Only the first micro-batch of a batch lacks the update of the batch before.
TEST(PipeDream, AlternatesAcrossTheBordersOfBatches) {
  const PipelineSchedule schedule = pipedream_schedule(shape_of(2, 2), 1, 3);
  EXPECT_EQ(passes_with_versions(schedule[0]),
            "F1@0 F1@0 B1@0 F2@0 B1@0 U1 F2@1 B2@0 F3@1 B2@1 U2 F3@2 B3@1 B3@2 U3");
  EXPECT_EQ(passes_with_versions(schedule[1]),
            "F1@0 B1@0 F1@0 B1@0 U1 F2@1 B2@1 F2@1 B2@1 U2 F3@2 B3@2 F3@2 B3@2 U3");
  EXPECT_EQ(peak_in_flight(schedule[0]), 2);
}

// A stage learns a step's totals when the first stage has ended the step, or soon will.
TEST(PipeDream, StopsAfterAsFewStepsAsItsStagesHaveBegun) {
  EXPECT_EQ(steps_until_empty(shape_of(4, 1)), 3);
  EXPECT_EQ(steps_until_empty(shape_of(4, 2)), 2);
  EXPECT_EQ(steps_until_empty(shape_of(4, 8)), 2);
  EXPECT_EQ(steps_until_empty(shape_of(2, 8)), 1);
  EXPECT_EQ(totals_delay(shape_of(4, 1), 3), 3);
  EXPECT_EQ(totals_delay(shape_of(4, 8), 3), 1);
  EXPECT_EQ(totals_delay(shape_of(4, 8), 0), 0);
}

TEST(PipeDream, BeginsAgainAfterTheStepThatEmptiesThePipeline) {
  const std::vector<Action> actions =
      pipedream_step(shape_of(3, 1), 0, {.first = 11, .step = 11, .last = 12});
  EXPECT_EQ(passes_with_versions(actions), "F11@10 F12@10 B11@10 U11");
}

TEST(PipeDream, HasNoProblemForAnyShape) {
  for (int64_t stages = 2; stages <= 8; ++stages) {
    for (const int64_t micro_batches : {1, 2, 3, 4, 8, 16, 32}) {
      for (const VersionRules& rules :
           {VersionRules{}, VersionRules{.is_vertical = true}, VersionRules{.stashes = false}}) {
        for (const int64_t steps : {int64_t{1}, int64_t{2}, stages, 2 * stages + 1}) {
          const PipelineShape shape = shape_of(stages, micro_batches, rules);
          const std::vector<std::string> problems =
              pipedream_problems(shape, pipedream_schedule(shape, 5, 4 + steps), 5, 4 + steps);
          EXPECT_TRUE(problems.empty())
              << stages << " stages, " << micro_batches << " micro-batches, " << steps
              << " steps: " << problems.front();
        }
      }
    }
  }
}

TEST(PipeDream, KeepsAsManyVersionsAsItsRulesNeed) {
  for (int64_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(stashed_versions(shape_of(4, 1), stage), 3 - stage);
    EXPECT_EQ(stashed_versions(shape_of(4, 1, {.is_vertical = true}), stage), 3);
    EXPECT_EQ(stashed_versions(shape_of(4, 1, {.stashes = false}), stage), 0);
    EXPECT_EQ(stashed_versions(shape_of(4, 2), stage), (4 - stage) / 2);
    EXPECT_EQ(stashed_versions(shape_of(4, 8), stage), stage < 3 ? 1 : 0);
    EXPECT_EQ(stashed_versions(shape_of(4, 8, {.is_vertical = true}), stage), 1);
    EXPECT_EQ(in_flight_bound(shape_of(4, 2), stage), 4 - stage);
  }
}

// A batch of m micro-batches takes m x (F + B) on each stage. Stages wait only for the first
// forwards and the last backwards.
TEST(PipeDream, WaitsOnlyWhileThePipelineFillsAndEmpties) {
  for (const int64_t stages : {2, 4, 8}) {
    for (const int64_t micro_batches : {1, 4}) {
      const PipelineShape shape = shape_of(stages, micro_batches);
      const int64_t steps = 100;
      const ScheduleTime time =
          schedule_time(shape, pipedream_schedule(shape, 1, steps), {.forward = 1, .backward = 2});
      const double work = static_cast<double>(3 * micro_batches * steps);
      EXPECT_DOUBLE_EQ(time.step_seconds, work + 3 * static_cast<double>(stages - 1));
    }
  }
}

// Each mistake is planted in a list of a schedule without problems.
struct Mistake {
  const char* name;
  std::function<void(PipelineSchedule&)> plant;
  std::string problem;
};

std::vector<Action>::iterator find(std::vector<Action>& actions, ActionKind kind, int64_t step) {
  const auto found = std::ranges::find_if(
      actions, [&](const Action& action) { return action.kind == kind && action.step == step; });
  EXPECT_NE(found, actions.end());
  return found;
}

std::vector<Mistake> mistakes() {
  return {
      {"a backward is missing",
       [](PipelineSchedule& s) { s[1].erase(find(s[1], ActionKind::kBackward, 2)); },
       "comes before backward"},
      {"a backward reads another version than its forward",
       [](PipelineSchedule& s) { find(s[0], ActionKind::kBackward, 2)->version = 1; },
       "reads version 1, expected 0"},
      {"a forward reads a version that is not the latest",
       [](PipelineSchedule& s) { find(s[0], ActionKind::kForward, 3)->version = 0; },
       "reads version 0, expected 1"},
      {"an update comes before the gradients are complete",
       [](PipelineSchedule& s) {
         std::iter_swap(find(s[1], ActionKind::kUpdate, 1), find(s[1], ActionKind::kBackward, 1));
       },
       "comes before"},
      {"batches are swapped",
       [](PipelineSchedule& s) {
         std::iter_swap(find(s[0], ActionKind::kForward, 1), find(s[0], ActionKind::kForward, 2));
       },
       "comes twice or too late"},
      {"a gradient is not sent",
       [](PipelineSchedule& s) { s[1].erase(find(s[1], ActionKind::kSendGradient, 2)); },
       "send gradient: expected 4, found 3"},
      {"stages wait for each other",
       [](PipelineSchedule& s) {
         const auto backward = find(s[0], ActionKind::kReceiveGradient, 1);
         std::rotate(s[0].begin(), backward, backward + 1);
       },
       "waits forever"},
  };
}

TEST(PipeDream, IsCheckedForPlantedMistakes) {
  const PipelineShape shape = shape_of(2, 1);
  for (const Mistake& mistake : mistakes()) {
    PipelineSchedule schedule = pipedream_schedule(shape, 1, 4);
    mistake.plant(schedule);
    std::string all;
    for (const std::string& problem : pipedream_problems(shape, schedule, 1, 4)) {
      all += problem + "\n";
    }
    EXPECT_NE(all.find(mistake.problem), std::string::npos) << mistake.name << ": " << all;
  }
}

}  // namespace
}  // namespace lockstep
