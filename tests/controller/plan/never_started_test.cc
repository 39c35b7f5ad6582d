// Programs that fail the same way at every start.
#include "controller/plan/never_started.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/api/worker_config.h"
#include "controller/plan/ledger.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr char kLastWords[] = "ModuleNotFoundError: No module named 'numpi'";

Scene scene_of(bool is_train, int64_t nodes = 2) {
  Scene scene(nodes);
  scene.seen.job.spec.failure.maxRestarts = 1000;
  if (!is_train) {
    scene.seen.job.spec.train.reset();
    scene.seen.job.spec.command = {"python3", "train.py"};
  }
  scene.train();
  return scene;
}

struct Start {
  int64_t code = 1;
  std::string reason = "Error";
  int64_t index = 0;
  Duration after = seconds(60);  // since the last failure
  double seconds_ago = 0.5;
};

// Starts all ranks, and has the start end in this way.
void fail(Scene& scene, const Start& start = {}) {
  const WorkerPhase phase =
      scene.seen.job.spec.train ? WorkerPhase::kLoading : WorkerPhase::kTraining;
  for (int64_t i = 0; i < scene.seen.job.spec.nodes; ++i) scene.add_agent(i, phase);
  scene.settle();
  scene.advance(start.after);
  for (auto& [uid, view] : scene.seen.agents) view.last_heard = view.state_at = scene.now;
  scene.fail_worker(start.index, start.code, start.seconds_ago, start.reason);
  scene.agent(start.index).workers.front().log_tail = kLastWords;
  scene.settle();
}

void evict_the_first_pod(Scene& scene) {
  scene.seen.pods.front().phase = "Failed";
  scene.seen.pods.front().reason = "Evicted";
  scene.settle();
  scene.seen.pods.erase(scene.seen.pods.begin());
  scene.add_pod(0, scene.status().members[0] - '0').created_in_round = scene.status().round;
  scene.settle();
  scene.settle();
}

bool never_started(const Scene& scene) {
  return condition(scene.seen.job.status, kFailed).reason == "NeverStarted";
}

TEST(NeverStarted, ThreeStartsThatFailTheSameWayWithinTwoMinutesEndTheJobWithItsLastWords) {
  Scene scene = scene_of(false);
  fail(scene);
  fail(scene, {.index = 1});  // another rank, on another node
  EXPECT_FALSE(is_true(scene.status(), kFailed)) << "two starts";
  fail(scene);
  ASSERT_TRUE(is_true(scene.status(), kFailed));
  const Condition& failed = condition(scene.status(), kFailed);
  EXPECT_EQ(failed.reason, "NeverStarted");
  EXPECT_NE(
      failed.message.find("rank 0 of node index 0 on machine-0 failed in round 3: Error, exit "
                          "code 1; the last 3 starts, within 120 s, all failed this way"),
      std::string::npos)
      << failed.message;
  EXPECT_TRUE(failed.message.ends_with(kLastWords)) << failed.message;
  EXPECT_EQ(scene.status().lastFailure->action, "Fail");
  EXPECT_EQ(scene.status().state, "Failed");
  EXPECT_EQ(condition(scene.status(), kRunning).reason, "NeverStarted");
  EXPECT_FALSE(scene.status().completionTime.empty());
  EXPECT_EQ(scene.status().restarts, 2);
}

TEST(NeverStarted, AWarningSaysSo) {
  Scene scene = scene_of(false);
  fail(scene);
  fail(scene);
  scene.add_agent(0);
  scene.add_agent(1);
  scene.advance(minutes(2));
  for (auto& [uid, view] : scene.seen.agents) view.last_heard = view.state_at = scene.now;
  scene.fail_worker(0, 1, 0.5);
  const auto events = only<EmitEvent>(scene.plan());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].warning);
  EXPECT_EQ(events[0].reason, "NeverStarted");
}

TEST(NeverStarted, ABurstOfFailuresIsNotEnough) {
  Scene scene = scene_of(false);
  for (int i = 0; i < 6; ++i) fail(scene, {.after = seconds(20)});
  EXPECT_FALSE(is_true(scene.status(), kFailed)) << "six starts in 100 s";
  fail(scene, {.after = seconds(20)});
  EXPECT_TRUE(never_started(scene)) << "the seventh comes 120 s after the first";
}

TEST(NeverStarted, WithTheBackoffOfAProgramThatFailsAtOnceTheLedgerHoldsEnoughOfThem) {
  Scene scene = scene_of(false, 1);
  scene.seen.job.spec.failure.maxRestarts = 20;
  while (!is_true(scene.status(), kFailed)) {
    const auto& last = scene.status().lastFailure;
    scene.advance(from_seconds(last ? last->recovery.waitSeconds.value_or(0) : 0));
    fail(scene, {.after = from_seconds(0.6)});
  }
  EXPECT_TRUE(never_started(scene));
  EXPECT_EQ(scene.status().lastFailure->number, 9) << "127 s of backoff";
  EXPECT_LE(scene.status().failures.size(), kFailuresKept);
}

struct WayCase {
  const char* name;
  bool is_train;
  Start start;
  bool ends;
};

TEST(NeverStarted, OnlyFailuresOfTheProgramItselfCount) {
  const WayCase cases[] = {
      {"a command's exit code", false, {.code = 3}, true},
      {"exit codes have no meaning for a command", false, {.code = kExitStorageError}, true},
      {"a command that can't be executed", false, {.code = 127, .reason = "StartError"}, true},
      {"a signal of its own", false, {.code = 139, .reason = "Signal"}, true},
      {"over its memory", false, {.code = 137, .reason = "OOMKilled"}, true},
      {"SIGKILL from elsewhere", false, {.code = 137, .reason = "Signal"}, false},
      {"its child was killed", false, {.code = 137}, false},
      {"SIGTERM from elsewhere", false, {.code = 143, .reason = "Signal"}, false},
      {"an error of the built-in loop", true, {.code = kExitOwnError}, true},
      {"a crash of the built-in loop", true, {.code = 139, .reason = "Signal"}, true},
      {"storage", true, {.code = kExitStorageError}, false},
      {"the port", true, {.code = kExitPortTaken}, false},
      {"a lost peer", true, {.code = kExitPeerLost, .seconds_ago = 6}, false},
      {"a hung peer", true, {.code = kExitPeerHung, .seconds_ago = 6}, false},
  };
  for (const WayCase& c : cases) {
    SCOPED_TRACE(c.name);
    Scene scene = scene_of(c.is_train);
    for (int i = 0; i < 5; ++i) {
      if (!is_true(scene.status(), kFailed)) fail(scene, c.start);
    }
    EXPECT_EQ(never_started(scene), c.ends);
    EXPECT_EQ(is_true(scene.status(), kFailed), c.ends);
    EXPECT_EQ(scene.status().lastFailure->number, c.ends ? 3 : 5);
  }
}

struct BetweenCase {
  const char* name;
  std::function<void(Scene&)> event;  // between the second failure and the third one
  bool ends;
};

void make_progress(Scene& scene, const ProgressStatus& progress) {
  scene.add_agent(0).progress = progress;
  scene.add_agent(1);
  scene.settle();
}

ProgressStatus with_step(int64_t step) {
  ProgressStatus progress;
  progress.step = step;
  return progress;
}

ProgressStatus with_samples() {
  ProgressStatus progress;
  progress.samples = 12;
  return progress;
}

TEST(NeverStarted, ProgressAnotherWayToFailAndAnEditSpareTheJobAndLostPodsDoNot) {
  const BetweenCase cases[] = {
      {"nothing", [](Scene&) {}, true},
      {"a lost pod", evict_the_first_pod, true},
      {"another exit code", [](Scene& scene) { fail(scene, {.code = 2}); }, false},
      {"a signal instead", [](Scene& scene) { fail(scene, {.code = 139, .reason = "Signal"}); },
       false},
      {"somebody kills a rank",
       [](Scene& scene) { fail(scene, {.code = 137, .reason = "Signal"}); }, true},
      {"an edit of the spec", [](Scene& scene) { ++scene.seen.job.metadata.generation; }, false},
      {"step 0", [](Scene& scene) { make_progress(scene, with_step(0)); }, true},
      {"a step", [](Scene& scene) { make_progress(scene, with_step(1)); }, false},
      {"samples without a step", [](Scene& scene) { make_progress(scene, with_samples()); }, false},
      {"a checkpoint", [](Scene& scene) { scene.status().lastCheckpoint.emplace(); }, false},
      {"a round of 10 minutes", [](Scene& scene) { fail(scene, {.after = seconds(602)}); }, false},
      {"a round of 9 minutes", [](Scene& scene) { fail(scene, {.after = minutes(9)}); }, true},
  };
  for (const BetweenCase& c : cases) {
    SCOPED_TRACE(c.name);
    Scene scene = scene_of(false);
    fail(scene);
    fail(scene);
    c.event(scene);
    if (!is_true(scene.status(), kFailed)) fail(scene, {.after = minutes(2)});
    EXPECT_EQ(never_started(scene), c.ends);
  }
}

// Once it has run, what its restarts meet (a lost mount, a network) passes: maxRestarts limits
// them.
TEST(NeverStarted, AJobThatOnceRanForLongIsNeverEndedByThis) {
  Scene scene = scene_of(false);
  fail(scene, {.after = seconds(602)});
  for (int i = 0; i < 15; ++i) fail(scene);
  EXPECT_FALSE(is_true(scene.status(), kFailed));
  EXPECT_EQ(scene.status().longestRunSeconds, 601.5);
}

TEST(NeverStarted, AJobThatOnceMadeAStepIsNeverEndedByThis) {
  for (const bool is_train : {false, true}) {
    Scene scene = scene_of(is_train);
    make_progress(scene, with_step(7));
    for (int i = 0; i < 15; ++i) fail(scene);
    EXPECT_FALSE(is_true(scene.status(), kFailed)) << is_train;
    EXPECT_EQ(scene.status().lastFailure->furthestStep, 7);
  }
}

TEST(NeverStarted, FailuresThatAnOlderControllerRecordedDoNotCount) {
  Scene scene = scene_of(false);
  fail(scene);
  fail(scene);
  const auto forget = [&] {
    scene.status().longestRunSeconds = 0;
    scene.status().lastFailure->generation = 0;
    for (FailureStatus& failure : scene.status().failures) failure.generation = 0;
  };
  forget();
  fail(scene);
  fail(scene);
  EXPECT_FALSE(is_true(scene.status(), kFailed));
  fail(scene);
  EXPECT_TRUE(never_started(scene));

  Scene old = scene_of(false);
  old.status().trainedSeconds = 100'000;  // in one run or in many: it doesn't say
  for (int i = 0; i < 5; ++i) fail(old);
  EXPECT_FALSE(is_true(old.status(), kFailed));
}

TEST(NeverStarted, ARuleForTheFailureTakesPrecedence) {
  for (const char* action : {"RestartInPlace", "RecreatePod", "Ignore"}) {
    SCOPED_TRACE(action);
    Scene scene = scene_of(false, 1);
    scene.seen.job.spec.failure.rules = {{.exitCodes = {9, 1}, .action = action}};
    for (int i = 0; i < 5; ++i) {
      fail(scene);
      scene.seen.pods.clear();
      scene.add_pod(0, scene.status().members[0] - '0').created_in_round = scene.status().round;
      scene.settle();
    }
    EXPECT_FALSE(is_true(scene.status(), kFailed));
    EXPECT_EQ(scene.status().lastFailure->number, 5);
  }
}

TEST(NeverStarted, MaxRestartsLimitsItAsBefore) {
  Scene scene = scene_of(false);
  scene.seen.job.spec.failure.maxRestarts = 1;
  fail(scene);
  fail(scene);
  EXPECT_EQ(condition(scene.status(), kFailed).reason, "TooManyRestarts");
}

TEST(NeverStarted, AJobThatAvoidsNodesTriesAnotherOneFirst) {
  Scene scene = scene_of(false, 1);
  scene.seen.job.spec.failure.avoidNodes = 3;
  fail(scene);
  fail(scene);
  fail(scene);
  EXPECT_FALSE(is_true(scene.status(), kFailed)) << "its pod leaves machine-0";
  EXPECT_EQ(scene.status().members, "2");
  scene.seen.pods.clear();
  scene.add_pod(0, 2).created_in_round = scene.status().round;
  scene.seen.pods.front().node_name = "machine-7";
  scene.settle();
  fail(scene);
  EXPECT_TRUE(never_started(scene)) << "and fails on machine-7";
}

}  // namespace
}  // namespace lockstep::plan
