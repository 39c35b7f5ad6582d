// Failures, progress and ports of a user's own program, whose exit codes have no special meaning.
#include <gtest/gtest.h>

#include "common/api/worker_config.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

// A job of `nodes` nodes that runs a command with one rank per node. All ranks run.
Scene command_scene(int64_t nodes = 3) {
  Scene scene(nodes);
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.command = {"python3", "train.py"};
  scene.train();
  return scene;
}

void kill_worker(Scene& scene, int64_t index, int64_t signal, double seconds_ago) {
  scene.fail_worker(index, 128 + signal, seconds_ago, "Signal");
  scene.agent(index).workers.front().signal = signal;
}

TEST(CommandFailure, ExitCodesOfTheBuiltInLoopMeanNothingToACommand) {
  for (const int64_t code : {kExitPeerLost, kExitBadConfig, kExitDataError, kExitNotFinite}) {
    Scene scene = command_scene(1);
    scene.fail_worker(0, code, 0.5);
    scene.settle();
    EXPECT_EQ(scene.status().state, "Restarting") << code;
    EXPECT_EQ(scene.status().lastFailure->rank, 0) << code;
    EXPECT_EQ(scene.status().lastFailure->exitCode, code);
  }
}

TEST(CommandFailure, ASignalThatEndsARankForSureIsActedOnAtOnce) {
  Scene scene = command_scene();
  kill_worker(scene, 2, 9, 0.01);
  const Plan plan = scene.plan();
  EXPECT_TRUE(is_decision(plan)) << plan.why;
  const auto events = only<EmitEvent>(plan);
  ASSERT_FALSE(events.empty());
  EXPECT_NE(events[0].message.find("exit code 137 (SIGKILL)"), std::string::npos)
      << events[0].message;
}

TEST(CommandFailure, WaitsALittleForAnEarlierFailureThatIsNotYetHeardOf) {
  Scene scene = command_scene();
  scene.fail_worker(0, 1, 0.02);  // an exception, perhaps because its peer is gone
  Plan plan = scene.plan();
  EXPECT_FALSE(is_decision(plan)) << plan.why;
  ASSERT_TRUE(plan.requeue_at);
  EXPECT_LE(*plan.requeue_at, scene.now + scene.limits.command_culprit_wait);
  kill_worker(scene, 2, 9, 0.06);
  plan = scene.plan();
  EXPECT_TRUE(is_decision(plan)) << plan.why;
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->rank, 2);
}

TEST(CommandFailure, GoesOnWithoutAnotherOneWhenTheLittleWhileIsOver) {
  Scene scene = command_scene();
  scene.fail_worker(0, 1, 0.3);
  EXPECT_TRUE(is_decision(scene.plan()));
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->rank, 0);
}

struct CulpritCase {
  const char* name;
  double exited_ago;  // rank 0, with exit code 1
  double killed_ago;  // rank 2, by SIGKILL
  int64_t culprit;
};

TEST(CommandFailure, TheEarliestIsTheCulpritAndASignalAmongThoseAtTheSameTime) {
  const CulpritCase cases[] = {
      {"killed first", 0.3, 0.5, 2},
      {"killed long after", 1.0, 0.5, 0},
      {"killed a moment after, as clocks go", 0.52, 0.5, 2},
  };
  for (const CulpritCase& c : cases) {
    Scene scene = command_scene();
    scene.fail_worker(0, 1, c.exited_ago);
    kill_worker(scene, 2, 9, c.killed_ago);
    scene.settle();
    EXPECT_EQ(scene.status().lastFailure->rank, c.culprit) << c.name;
  }
}

TEST(CommandFailure, TheTimesOfRanksOfOneNodeTellThemApart) {
  Scene scene = command_scene(2);
  scene.fail_worker(0, 1, 0.5);
  WorkerState second = scene.agent(0).workers.front();
  second.rank = 1;
  second.failed_seconds_ago = 0.5;
  second.log_tail = "it was me";
  scene.agent(0).workers.front().failed_seconds_ago = 0.3;
  scene.agent(0).workers.push_back(second);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->rank, 1);
  EXPECT_EQ(scene.status().lastFailure->message, "it was me");
}

TEST(CommandFailure, ARoundThatRanForLongWithoutStepsWasNoFailedAttempt) {
  Scene scene = command_scene(1);
  for (int64_t attempt = 1; attempt <= 3; ++attempt) {
    kill_worker(scene, 0, 11, 0.1);
    scene.settle();
    EXPECT_EQ(scene.status().lastFailure->attempt, attempt);
    scene.advance(std::chrono::seconds(30));
    scene.add_agent(0);
    scene.settle();
  }
  scene.advance(std::chrono::minutes(11));
  kill_worker(scene, 0, 11, 0.1);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->attempt, 1);
}

TEST(CommandProgress, TheLowestNodeTellsTheStepAndCountsAddUp) {
  Scene scene = command_scene(3);
  for (const int64_t index : {1, 2}) {
    ProgressStatus& progress = scene.agent(index).progress.emplace();
    progress.step = 10 * index;
    progress.steps = 100;
    progress.loss = 1.0 / static_cast<double>(index);
    progress.samples = 500;
    progress.samples_per_second = 25;
  }
  scene.settle();
  const ProgressStatus& progress = *scene.status().progress;
  EXPECT_EQ(progress.step, 10);
  EXPECT_EQ(progress.loss, 1.0);
  EXPECT_EQ(progress.samples, 1000);
  EXPECT_EQ(progress.samples_per_second, 50);
  EXPECT_FALSE(progress.tokens_per_second);
}

TEST(CommandProgress, IsRoundedAsPeopleReadIt) {
  Scene scene = command_scene(1);
  ProgressStatus& progress = scene.agent(0).progress.emplace();
  progress.loss = 5.303194332867861;
  progress.validation_loss = 0.000123456789;
  progress.samples_per_second = 17344.78915700436;
  progress.tokens_per_second = 0.0123456789;
  scene.settle();
  EXPECT_EQ(scene.status().progress->loss, 5.303194);
  EXPECT_EQ(scene.status().progress->validation_loss, 0.0001234568);
  EXPECT_EQ(scene.status().progress->samples_per_second, 17345);
  EXPECT_EQ(scene.status().progress->tokens_per_second, 0.012346);
}

TEST(CommandWorld, EachRoundHasPortsOfItsOwnAndEachPodOfOneMachineToo) {
  Scene scene = command_scene(2);
  EXPECT_EQ(scene.status().rendezvous->port, 29500);
  kill_worker(scene, 1, 9, 0.1);
  scene.settle();
  EXPECT_EQ(scene.status().rendezvous->port, 29501);
  const auto puts = only<PutAssignment>(scene.plan());
  ASSERT_EQ(puts.size(), 2u);
  EXPECT_EQ(puts[0].assignment->restarts, 1);
  EXPECT_EQ(puts[0].assignment->max_restarts, 10);
  EXPECT_EQ(puts[0].assignment->world.members[1].port, 29501) << "each pod has its own address";

  Scene local(2);
  local.seen.job.spec.train.reset();
  local.seen.job.spec.command = {"sh"};
  local.settle();
  for (int64_t i = 0; i < 2; ++i) local.add_pod(i).ip = "127.1.2." + std::to_string(i + 1);
  local.settle();
  const auto of_machine = only<PutAssignment>(local.plan());
  ASSERT_EQ(of_machine.size(), 2u);
  EXPECT_EQ(of_machine[0].assignment->world.members[0].port, 29500);
  EXPECT_EQ(of_machine[0].assignment->world.members[1].port, 29508);
}

}  // namespace
}  // namespace lockstep::plan
