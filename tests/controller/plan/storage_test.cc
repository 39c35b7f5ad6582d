#include <gtest/gtest.h>

#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

StorageState failing_at(int64_t step, int64_t saved = 0) {
  return {.saved = saved, .failed_step = step, .failure = "disk full", .resumed_step = 0};
}

StorageState setting_aside(int64_t step, int64_t resumed, int64_t count = 1) {
  return {.set_aside = count,
          .set_aside_step = step,
          .set_aside_reason = "a chunk of weights differs",
          .resumed_step = resumed};
}

constexpr char kStep500Failed[] = "the checkpoint of step 500 could not be saved: disk full";
constexpr char kResumedFrom400[] =
    "training resumed from step 400, because the checkpoint of step 500 is corrupt and was set "
    "aside: a chunk of weights differs";

// A job of two nodes that trains, whose rank 0 reports this of the storage.
Scene reporting(const StorageState& storage) {
  Scene scene(2);
  scene.train();
  scene.agent(0).storage = storage;
  return scene;
}

// Begins the next round in the same pods. Its rank 0 has not reported the storage yet.
void restart(Scene& scene) {
  scene.fail_worker(1, 1, 1);
  scene.settle();  // records the failure
  scene.advance(std::chrono::seconds(5));
  scene.settle();  // records the round
  ASSERT_EQ(scene.status().round, 2);
  ASSERT_FALSE(scene.status().worldHash.empty());
}

TEST(StorageConditions, FollowWhatTheCurrentRoundReports) {
  struct Case {
    const char* what;
    const char* type;
    std::optional<StorageState> before;  // in status first
    StorageState now;
    const char* status;  // Unknown: there is no condition
    const char* reason;
    const char* message;
    size_t events;  // sent by the last report
  };
  const Case cases[] = {
      {"the first save failed",
       kCheckpointFailing,
       {},
       failing_at(500),
       "True",
       "SaveFailed",
       kStep500Failed,
       1},
      {"a later save failed too", kCheckpointFailing, failing_at(400), failing_at(500), "True",
       "SaveFailed", kStep500Failed, 0},
      {"saves succeed",
       kCheckpointFailing,
       {},
       {.saved = 2, .resumed_step = 0},
       "Unknown",
       "",
       "",
       0},
      {"a later save succeeds",
       kCheckpointFailing,
       failing_at(400),
       {.saved = 1, .resumed_step = 0},
       "False",
       "Saved",
       "",
       0},
      {"nothing is saved yet",
       kCheckpointFailing,
       failing_at(500),
       {.resumed_step = 400},
       "True",
       "SaveFailed",
       kStep500Failed,
       0},
      {"no batch was skipped", kBatchSkipped, {}, {.resumed_step = 0}, "Unknown", "", "", 0},
      {"a batch was skipped",
       kBatchSkipped,
       {},
       {.skips = 1, .skip = "step 9: bad"},
       "True",
       "LossRule",
       "step 9: bad (1 so far)",
       1},
      {"it is reported again",
       kBatchSkipped,
       StorageState{.skips = 1, .skip = "step 9: bad"},
       {.skips = 1, .skip = "step 9: bad"},
       "True",
       "LossRule",
       "step 9: bad (1 so far)",
       0},
      {"another one was skipped",
       kBatchSkipped,
       StorageState{.skips = 1, .skip = "step 9: bad"},
       {.skips = 2, .skip = "step 11: bad"},
       "True",
       "LossRule",
       "step 11: bad (2 so far)",
       1},
      {"the next round knows only how many",
       kBatchSkipped,
       StorageState{.skips = 1, .skip = "step 9: bad"},
       {.skips = 1},
       "True",
       "LossRule",
       "step 9: bad (1 so far)",
       0},
      {"the state that the next round resumed from has fewer",
       kBatchSkipped,
       StorageState{.skips = 2, .skip = "step 9: bad"},
       {.skips = 1},
       "True",
       "LossRule",
       "step 9: bad (2 so far)",
       0},
      {"the next round knows of more than was told",
       kBatchSkipped,
       StorageState{.skips = 1, .skip = "step 9: bad"},
       {.skips = 2},
       "True",
       "LossRule",
       "training went on without batches in an earlier round (2 so far)",
       1},
      {"nobody was told in time",
       kBatchSkipped,
       {},
       {.skips = 1},
       "True",
       "LossRule",
       "training went on without batches in an earlier round (1 so far)",
       1},
      {"one was set aside",
       kCheckpointSetAside,
       {},
       setting_aside(500, 400),
       "True",
       "Corrupt",
       kResumedFrom400,
       1},
      {"all of them were",
       kCheckpointSetAside,
       {},
       setting_aside(500, 0, 2),
       "True",
       "Corrupt",
       "training started over at step 0, because the checkpoint of step 500 (one of 2) is corrupt "
       "and was set aside: a chunk of weights differs",
       1},
      {"rank 0 still loads", kCheckpointSetAside, {}, setting_aside(500, -1), "Unknown", "", "", 0},
      {"it is reported again", kCheckpointSetAside, setting_aside(500, 400),
       setting_aside(500, 400), "True", "Corrupt", kResumedFrom400, 0},
      {"another one was set aside", kCheckpointSetAside, setting_aside(700, 600),
       setting_aside(500, 400), "True", "Corrupt", kResumedFrom400, 1},
      {"the next round loads",
       kCheckpointSetAside,
       setting_aside(500, 400),
       {},
       "True",
       "Corrupt",
       kResumedFrom400,
       0},
      {"the next round has loaded",
       kCheckpointSetAside,
       setting_aside(500, 400),
       {.resumed_step = 600},
       "False",
       "Loaded",
       "",
       0},
      {"none was ever set aside",
       kCheckpointSetAside,
       {},
       {.resumed_step = 600},
       "Unknown",
       "",
       "",
       0},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    Scene scene = reporting(test.before.value_or(StorageState{}));
    scene.settle();
    scene.agent(0).storage = test.now;
    const Plan plan = scene.plan();
    const Condition found = condition(written(scene, plan), test.type);
    EXPECT_EQ(found.status, test.status);
    EXPECT_EQ(found.reason, test.reason);
    EXPECT_EQ(found.message, test.message);
    const auto events = only<EmitEvent>(plan);
    ASSERT_EQ(events.size(), test.events);
    if (events.empty()) continue;
    EXPECT_TRUE(events[0].warning);
    EXPECT_EQ(events[0].reason, test.type);
    EXPECT_EQ(events[0].message, test.message);
  }
}

TEST(CheckpointFailing, ANewMessageAloneWaitsForTheBudgetOfProgress) {
  Scene scene = reporting(failing_at(400));
  scene.settle();
  scene.seen.may_write_progress = false;
  scene.agent(0).storage = failing_at(500);
  EXPECT_TRUE(only<WriteStatus>(scene.plan()).empty());
  scene.agent(0).storage = StorageState{.saved = 1, .resumed_step = 0};
  EXPECT_EQ(only<WriteStatus>(scene.plan()).size(), 1u) << "that it ended does not wait";
}

TEST(CheckpointFailing, OfTheLastSaveIsKnownWhenTheJobIsComplete) {
  Scene scene = reporting(failing_at(900, 8));
  for (const int64_t index : {0, 1}) {
    AgentState& state = scene.agent(index);
    state.phase = "Completed";
    state.workers[0].running = false;
    state.workers[0].reason = "Completed";
  }
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kComplete));
  const Condition found = condition(scene.status(), kCheckpointFailing);
  EXPECT_EQ(found.status, "True");
  EXPECT_EQ(found.message, "the checkpoint of step 900 could not be saved: disk full");
}

TEST(CheckpointFailing, ARoundThatHasNotSavedYetDoesNotEndIt) {
  Scene scene = reporting(failing_at(500));
  scene.settle();
  restart(scene);
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kCheckpointFailing));
  scene.add_agent(0).storage = StorageState{.resumed_step = 400};
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kCheckpointFailing).message, kStep500Failed);
  scene.agent(0).storage->saved = 1;
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kCheckpointFailing).status, "False");
}

TEST(CheckpointSetAside, IsToldOfARoundThatEndedBeforeItResumed) {
  Scene scene = reporting(setting_aside(500, -1));
  scene.settle();
  ASSERT_EQ(find_condition(scene.status(), kCheckpointSetAside), nullptr);
  scene.fail_worker(0, 5, 1);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->exitCode, 5);
  EXPECT_EQ(condition(scene.status(), kCheckpointSetAside).message,
            "the checkpoint of step 500 is corrupt and was set aside: a chunk of weights differs");
}

TEST(CheckpointSetAside, EndsWhenALaterRoundLoadsWithoutSettingOneAside) {
  Scene scene = reporting(setting_aside(500, 400));
  scene.settle();
  restart(scene);
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kCheckpointSetAside)) << "by the report of round 1";
  scene.add_agent(0).storage = StorageState{.resumed_step = 400};
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kCheckpointSetAside).status, "False");
}

TEST(CheckpointSetAside, IfNoneIsLeftTheStatusNamesNoneEither) {
  Scene scene = reporting(StorageState{.resumed_step = 0});
  scene.agent(0).last_checkpoint = CheckpointStatus{500, "/ckpt/step-00000500"};
  scene.settle();
  EXPECT_TRUE(scene.status().lastCheckpoint.has_value());
  scene.agent(0).last_checkpoint.reset();
  scene.agent(0).storage = setting_aside(500, 0);
  scene.advance(std::chrono::seconds(10));
  scene.settle();
  EXPECT_FALSE(scene.status().lastCheckpoint.has_value());
}

TEST(CheckpointSetAside, AnOldRoundsReportOfANodeThatIsLeftOutDoesNotCount) {
  Scene scene = reporting(setting_aside(500, 400));
  scene.settle();
  scene.status().round = 3;
  scene.status().worldHash = "0123456789abcdef";
  scene.status().conditions.clear();
  EXPECT_EQ(find_condition(written(scene, scene.plan()), kCheckpointSetAside), nullptr);
}

TEST(StorageConditions, AreNotOfACommand) {
  Scene scene = reporting(failing_at(500));
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.command = {"train"};
  EXPECT_EQ(find_condition(written(scene, scene.plan()), kCheckpointFailing), nullptr);
}

}  // namespace
}  // namespace lockstep::plan
