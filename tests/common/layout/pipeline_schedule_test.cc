#include "common/layout/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "common/layout/schedule_check.h"

namespace lockstep {
namespace {

constexpr PipelineKind kKinds[] = {PipelineKind::kNaive, PipelineKind::kGpipe,
                                   PipelineKind::kOneForwardOneBackward, PipelineKind::kInterleaved,
                                   PipelineKind::kZeroBubble};

std::string text_of(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (!text.empty()) text += ", ";
    text += action_name(action.kind);
    if (action.micro_batch >= 0) text += " " + std::to_string(action.micro_batch);
    if (action.completes_gradients) text += " completes";
  }
  return text;
}

// The passes alone: F0 B0 W0.
std::string passes_of(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    const std::map<ActionKind, char> letters{{ActionKind::kForward, 'F'},
                                             {ActionKind::kBackward, 'B'},
                                             {ActionKind::kBackwardWeights, 'W'}};
    const auto letter = letters.find(action.kind);
    if (letter == letters.end()) continue;
    if (!text.empty()) text += ' ';
    text += letter->second + std::to_string(action.micro_batch);
    if (action.chunk > 0) text += std::string(static_cast<size_t>(action.chunk), '\'');
  }
  return text;
}

PipelineSchedule made(const PipelineShape& shape) {
  Result<PipelineSchedule> schedule = pipeline_schedule(shape);
  EXPECT_TRUE(schedule.ok()) << (schedule.ok() ? "" : schedule.error().message);
  return schedule.ok() ? std::move(schedule).value() : PipelineSchedule();
}

std::string first_problem(const PipelineShape& shape, const PipelineSchedule& schedule) {
  const std::vector<std::string> problems = schedule_problems(shape, schedule);
  return problems.empty() ? "" : problems.front();
}

// The backwards of each chunk, independently of the checker.
void expect_ascending(const std::vector<Action>& actions) {
  std::map<int64_t, int64_t> next;
  for (const Action& action : actions) {
    if (action.kind != ActionKind::kBackward) continue;
    EXPECT_EQ(action.micro_batch, next[action.chunk]++);
  }
}

TEST(PipelineSchedule, OfOneStageAccumulatesGradients) {
  const PipelineSchedule schedule = made({.kind = PipelineKind::kNaive, .micro_batches = 2});
  ASSERT_EQ(schedule.size(), 1u);
  EXPECT_EQ(text_of(schedule[0]),
            "take 0, forward 0, backward 0, take 1, forward 1, backward 1 completes, "
            "finish reductions, update");
}

TEST(PipelineSchedule, OfGpipeGoesForwardFirst) {
  const PipelineSchedule schedule =
      made({.kind = PipelineKind::kGpipe, .stages = 2, .micro_batches = 3});
  EXPECT_EQ(passes_of(schedule[0]), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(text_of(schedule[1]).substr(0, 60),
            "take 0, receive activation 0, forward 0, take 1, receive act");
}

TEST(PipelineSchedule, OfOneForwardOneBackwardAlternatesAfterTheWarmUp) {
  const PipelineSchedule schedule =
      made({.kind = PipelineKind::kOneForwardOneBackward, .stages = 3, .micro_batches = 4});
  EXPECT_EQ(passes_of(schedule[0]), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(passes_of(schedule[1]), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(passes_of(schedule[2]), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(PipelineSchedule, OfInterleavedChunksTakesTurns) {
  const PipelineSchedule schedule =
      made({.kind = PipelineKind::kInterleaved, .stages = 2, .micro_batches = 2, .chunks = 2});
  EXPECT_EQ(passes_of(schedule[0]), "F0 F1 F0' F1' B0' B1' B0 B1");
  EXPECT_EQ(passes_of(schedule[1]), "F0 F1 F0' B0' F1' B1' B0 B1");
}

TEST(PipelineSchedule, OfZeroBubbleComputesTheGradientsOfParametersApart) {
  const PipelineSchedule schedule =
      made({.kind = PipelineKind::kZeroBubble, .stages = 3, .micro_batches = 4});
  EXPECT_EQ(passes_of(schedule[0]), "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3");
  EXPECT_EQ(passes_of(schedule[1]), "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3");
  EXPECT_EQ(passes_of(schedule[2]), "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3");
  EXPECT_TRUE(
      text_of(schedule[2]).ends_with("backward weights 3 completes, finish reductions, update"));
}

TEST(PipelineSchedule, IsRightForAllSmallShapes) {
  int checked = 0;
  for (const PipelineKind kind : kKinds) {
    for (int64_t stages = 1; stages <= 6; ++stages) {
      for (int64_t micro_batches = 1; micro_batches <= 12; ++micro_batches) {
        for (int64_t chunks = 1; chunks <= 3; ++chunks) {
          const PipelineShape shape{kind, stages, micro_batches, chunks};
          const Result<PipelineSchedule> schedule = pipeline_schedule(shape);
          if (!schedule.ok()) continue;
          ++checked;
          for (const std::vector<Action>& actions : *schedule) expect_ascending(actions);
          EXPECT_EQ(first_problem(shape, *schedule), "")
              << pipeline_kind_name(kind) << " " << stages << " " << micro_batches << " " << chunks;
        }
      }
    }
  }
  EXPECT_EQ(checked, 4 * 6 * 12 + 2 * (12 + 6 + 4 + 3 + 2 + 2));
}

TEST(PipelineSchedule, KeepsAsManyMicroBatchesInFlightAsItsKindSays) {
  const auto peak = [](PipelineKind kind, size_t stage) {
    return peak_in_flight(made({.kind = kind, .stages = 4, .micro_batches = 8})[stage]);
  };
  EXPECT_EQ(peak(PipelineKind::kNaive, 0), 1);
  EXPECT_EQ(peak(PipelineKind::kGpipe, 0), 8);
  EXPECT_EQ(peak(PipelineKind::kOneForwardOneBackward, 0), 4);
  EXPECT_EQ(peak(PipelineKind::kOneForwardOneBackward, 3), 1);
  for (size_t stage = 0; stage < 4; ++stage) EXPECT_EQ(peak(PipelineKind::kZeroBubble, stage), 4);
  const PipelineSchedule interleaved =
      made({.kind = PipelineKind::kInterleaved, .stages = 4, .micro_batches = 8, .chunks = 2});
  for (size_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(peak_in_flight(interleaved[stage]), 11 - 2 * static_cast<int64_t>(stage));
  }
}

TEST(PipelineSchedule, RefusesShapesThatDoNotExist) {
  const std::vector<std::pair<PipelineShape, std::string>> shapes{
      {{PipelineKind::kGpipe, 0, 1, 1},
       "[schedule] gpipe with 0 stages, 1 micro-batches and 1 chunks: each must be at least 1"},
      {{PipelineKind::kGpipe, 1, 0, 1},
       "[schedule] gpipe with 1 stages, 0 micro-batches and 1 chunks: each must be at least 1"},
      {{PipelineKind::kNaive, 2, 2, 2},
       "[schedule] naive with 2 stages, 2 micro-batches and 2 chunks: only an interleaved schedule "
       "has several chunks"},
      {{PipelineKind::kInterleaved, 2, 4, 1},
       "[schedule] interleaved with 2 stages, 4 micro-batches and 1 chunks: an interleaved "
       "schedule "
       "has several chunks"},
      {{PipelineKind::kInterleaved, 2, 3, 2},
       "[schedule] interleaved with 2 stages, 3 micro-batches and 2 chunks: the micro-batches must "
       "be a multiple of the stages"}};
  for (const auto& [shape, message] : shapes) {
    const Result<PipelineSchedule> schedule = pipeline_schedule(shape);
    ASSERT_FALSE(schedule.ok());
    EXPECT_EQ(schedule.error().code, Code::kInvalid);
    EXPECT_EQ(schedule.error().message, message);
  }
}

// Plants one mistake in a right schedule and returns what the checker says first.
class PlantedMistake : public ::testing::Test {
 protected:
  using Plant = std::function<void(PipelineSchedule&)>;

  std::string found(const Plant& plant) const {
    PipelineSchedule schedule = made(shape_);
    plant(schedule);
    return first_problem(shape_, schedule);
  }
  static size_t find(const std::vector<Action>& actions, ActionKind kind, int64_t micro_batch) {
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].kind == kind && actions[i].micro_batch == micro_batch) return i;
    }
    ADD_FAILURE() << "no " << action_name(kind) << " " << micro_batch;
    return 0;
  }
  static void erase(std::vector<Action>& actions, ActionKind kind, int64_t micro_batch) {
    actions.erase(actions.begin() + static_cast<int64_t>(find(actions, kind, micro_batch)));
  }

  PipelineShape shape_{
      .kind = PipelineKind::kOneForwardOneBackward, .stages = 3, .micro_batches = 4};
};

TEST_F(PlantedMistake, AMissingActionIsFoundWhateverItIs) {
  const auto expect_found = [&](PipelineSchedule wrong, size_t stage, size_t i) {
    const Action missing = wrong[stage][i];
    wrong[stage].erase(wrong[stage].begin() + static_cast<int64_t>(i));
    EXPECT_FALSE(schedule_problems(shape_, wrong).empty())
        << "stage " << stage << " without " << action_name(missing.kind) << " "
        << missing.micro_batch;
  };
  for (const PipelineKind kind :
       {PipelineKind::kZeroBubble, PipelineKind::kOneForwardOneBackward}) {
    shape_.kind = kind;
    const PipelineSchedule right = made(shape_);
    for (size_t stage = 0; stage < right.size(); ++stage) {
      for (size_t i = 0; i < right[stage].size(); ++i) expect_found(right, stage, i);
    }
  }
  EXPECT_EQ(found([](PipelineSchedule& s) { erase(s[1], ActionKind::kSendActivation, 2); }),
            "stage 1, action 25: send activation 2 of chunk 0 is missing");
}

TEST_F(PlantedMistake, ADoubledActionIsFoundWhateverItIs) {
  const PipelineSchedule right = made(shape_);
  for (size_t stage = 0; stage < right.size(); ++stage) {
    for (size_t i = 0; i < right[stage].size(); ++i) {
      PipelineSchedule wrong = right;
      wrong[stage].insert(wrong[stage].begin() + static_cast<int64_t>(i), right[stage][i]);
      EXPECT_FALSE(schedule_problems(shape_, wrong).empty())
          << "stage " << stage << ", " << action_name(right[stage][i].kind);
    }
  }
}

TEST_F(PlantedMistake, ASwappedOrderIsFound) {
  EXPECT_EQ(found([](PipelineSchedule& s) {
              std::swap(s[0][find(s[0], ActionKind::kForward, 1)],
                        s[0][find(s[0], ActionKind::kTake, 1)]);
            }),
            "stage 0, action 3: forward 1 of chunk 0 comes before take");
  EXPECT_EQ(found([](PipelineSchedule& s) {
              std::swap(s[1][find(s[1], ActionKind::kReceiveGradient, 0)],
                        s[1][find(s[1], ActionKind::kBackward, 0)]);
            }).find("backward 0 of chunk 0 comes before receive gradient") == std::string::npos,
            false);
  EXPECT_EQ(found([](PipelineSchedule& s) { std::swap(s[2].back(), s[2][s[2].size() - 2]); }),
            "stage 2, action 20: update comes before finish reductions");
}

// Both receive orders are possible; only the sender's order is right.
TEST_F(PlantedMistake, MessagesReceivedInAnotherOrderAreFound) {
  shape_.kind = PipelineKind::kGpipe;
  EXPECT_EQ(found([](PipelineSchedule& s) {
              std::swap(s[1][find(s[1], ActionKind::kSendActivation, 0)],
                        s[1][find(s[1], ActionKind::kSendActivation, 1)]);
            }),
            "stage 1, action 2: send activation 1 of chunk 0 with stage 2 comes before forward");
  EXPECT_EQ(found([](PipelineSchedule& s) {
              Action& first = s[1][find(s[1], ActionKind::kReceiveActivation, 0)];
              const size_t second = find(s[1], ActionKind::kReceiveActivation, 1);
              const Action moved = s[1][second];
              s[1].erase(s[1].begin() + static_cast<int64_t>(second));
              s[1].insert(s[1].begin() + (&first - s[1].data()), moved);
            }),
            "stage 1, action 0: receive activation 1 of chunk 0 with stage 0, but the next message "
            "is activation 0");
}

// Stage 0 wants a gradient before it sends the activation from which stage 1 makes it.
TEST_F(PlantedMistake, ADeadlockIsFound) {
  shape_ = {.kind = PipelineKind::kGpipe, .stages = 2, .micro_batches = 2};
  EXPECT_EQ(found([](PipelineSchedule& s) {
              std::vector<Action>& first = s[0];
              const Action late = first[find(first, ActionKind::kSendActivation, 1)];
              erase(first, ActionKind::kSendActivation, 1);
              first.insert(
                  first.begin() + static_cast<int64_t>(find(first, ActionKind::kBackward, 1)) + 1,
                  late);
            }),
            "stage 0, action 5: waits forever to receive gradient 0 of chunk 0 with stage 1");
}

TEST_F(PlantedMistake, TooManyMicroBatchesInFlightAreFound) {
  const PipelineSchedule gpipe =
      made({.kind = PipelineKind::kGpipe, .stages = 3, .micro_batches = 4});
  EXPECT_EQ(first_problem(shape_, gpipe),
            "stage 0, action 22: 4 micro-batches are in flight, at most 3 fit");
}

TEST_F(PlantedMistake, GradientsOfParametersAtAWrongPlaceAreFound) {
  const PipelineSchedule plain = made(shape_);
  shape_.kind = PipelineKind::kZeroBubble;
  EXPECT_NE(first_problem(shape_, plain), "");
  EXPECT_EQ(found([](PipelineSchedule& s) {
              std::swap(s[2][find(s[2], ActionKind::kBackwardWeights, 0)].micro_batch,
                        s[2][find(s[2], ActionKind::kBackwardWeights, 1)].micro_batch);
            }),
            "stage 2, action 15: backward weights 1 of chunk 0: backwards must ascend");
  EXPECT_EQ(found([](PipelineSchedule& s) {
              std::vector<Action>& first = s[0];
              const size_t weights = find(first, ActionKind::kBackwardWeights, 0);
              std::swap(first[weights], first[find(first, ActionKind::kBackward, 0)]);
            }),
            "stage 0, action 10: backward weights 0 of chunk 0 comes before backward");
  shape_.kind = PipelineKind::kOneForwardOneBackward;
  EXPECT_EQ(found([](PipelineSchedule& s) {
              s[0].insert(s[0].begin() + 12,
                          {.kind = ActionKind::kBackwardWeights, .micro_batch = 0});
            }),
            "stage 0, action 12: backward weights 0 of chunk 0 does not exist");
}

TEST_F(PlantedMistake, AWrongEndOfTheGradientsIsFound) {
  EXPECT_EQ(
      found([](PipelineSchedule& s) {
        s[0][find(s[0], ActionKind::kBackward, 3)].completes_gradients = false;
      }),
      "stage 0, action 19: backward 3 of chunk 0 completes the gradients and does not say so");
  EXPECT_NE(found([](PipelineSchedule& s) {
              s[0][find(s[0], ActionKind::kBackward, 1)].completes_gradients = true;
            }),
            "");
}

// The original GPipe goes backward in the opposite order, which sums gradients in another order.
TEST_F(PlantedMistake, DescendingBackwardsAreFound) {
  shape_ = {.kind = PipelineKind::kGpipe, .stages = 1, .micro_batches = 2};
  EXPECT_EQ(found([](PipelineSchedule& s) {
              std::swap(s[0][find(s[0], ActionKind::kBackward, 0)].micro_batch,
                        s[0][find(s[0], ActionKind::kBackward, 1)].micro_batch);
            }),
            "stage 0, action 4: backward 1 of chunk 0: backwards must ascend");
}

TEST_F(PlantedMistake, TakesInAnotherOrderOrForNobodyAreFound) {
  shape_.kind = PipelineKind::kGpipe;
  EXPECT_EQ(found([](PipelineSchedule& s) {
              std::swap(s[0][find(s[0], ActionKind::kTake, 0)],
                        s[0][find(s[0], ActionKind::kTake, 1)]);
            }),
            "stage 0, action 0: take 1 of chunk 0: takes must ascend");
  EXPECT_EQ(found([](PipelineSchedule& s) {
              s[1].insert(s[1].begin(), {.kind = ActionKind::kTake, .micro_batch = 0});
            }),
            "stage 1, action 0: take 0 of chunk 0: nothing reads it");
}

TEST_F(PlantedMistake, AStepwideActionWithAMicroBatchOrAChunkIsFound) {
  EXPECT_EQ(found([](PipelineSchedule& s) {
              s[0].insert(s[0].begin(), {.kind = ActionKind::kFinishReductions, .micro_batch = 1});
            }),
            "stage 0, action 0: finish reductions 1 does not exist");
  EXPECT_NE(found([](PipelineSchedule& s) { s[0].back().chunk = 1; }), "");
  EXPECT_NE(found([](PipelineSchedule& s) { s[0][0].peer = 1; }), "");
  EXPECT_NE(found([](PipelineSchedule& s) { s[0][1].completes_gradients = true; }), "");
}

TEST_F(PlantedMistake, AnUnknownPeerMicroBatchOrChunkIsFound) {
  EXPECT_NE(found([](PipelineSchedule& s) { s[0][0].micro_batch = 4; }), "");
  EXPECT_NE(found([](PipelineSchedule& s) { s[0][0].chunk = 1; }), "");
  EXPECT_NE(
      found([](PipelineSchedule& s) { s[0][find(s[0], ActionKind::kSendActivation, 0)].peer = 2; }),
      "");
  EXPECT_NE(found([](PipelineSchedule& s) { s.pop_back(); }), "");
}

}  // namespace
}  // namespace lockstep
