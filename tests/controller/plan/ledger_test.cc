#include "controller/plan/ledger.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/random.h"
#include "controller/plan/members.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

double sum_of(const RecoveryStatus& parts) {
  return parts.detectSeconds.value_or(0) + parts.decideSeconds.value_or(0) +
         parts.waitSeconds.value_or(0) + parts.podsSeconds.value_or(0) +
         parts.abortSeconds.value_or(0) + parts.respawnSeconds.value_or(0) +
         parts.formSeconds.value_or(0) + parts.restoreSeconds.value_or(0);
}

// Replaces the pods by running ones of the current members.
void bring_pods(Scene& scene) {
  const auto members = members_from_text(scene.status().members);
  scene.seen.pods.clear();
  for (size_t i = 0; i < members.size(); ++i) {
    PodView& pod = scene.add_pod(static_cast<int64_t>(i), members[i]);
    pod.created_in_round = scene.status().round;
  }
}

void bring_agents(Scene& scene, WorkerPhase phase, int64_t step = 0) {
  for (int64_t i = 0; i < scene.seen.job.spec.nodes; ++i) {
    ProgressStatus& progress = scene.add_agent(i, phase).progress.emplace();
    progress.step = step;
  }
}

TEST(Ledger, SaysOfARestartInPlaceHowLongEachPartTook) {
  Scene scene(2);
  scene.train();
  scene.fail_worker(1, 1, 0.3);
  scene.advance(milliseconds(20));  // from the report to the decision
  scene.settle();
  scene.advance(milliseconds(700));
  bring_agents(scene, WorkerPhase::kForming);
  scene.settle();
  scene.advance(milliseconds(400));
  bring_agents(scene, WorkerPhase::kLoading);
  scene.settle();
  scene.advance(milliseconds(1500));
  bring_agents(scene, WorkerPhase::kTraining);
  const auto events = only<EmitEvent>(scene.plan());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].reason, "Recovered");
  EXPECT_EQ(events[0].message,
            "all ranks train again, 2.92 s after failure 1: detect 0.3, decide 0.02, wait 0, "
            "pods 0, form 1.1, restore 1.5 s");
  scene.settle();
  EXPECT_TRUE(only<EmitEvent>(scene.plan()).empty());
  ASSERT_EQ(scene.status().failures.size(), 1u);
  const FailureStatus& failure = scene.status().failures[0];
  EXPECT_EQ(failure, scene.status().lastFailure);
  EXPECT_EQ(failure.number, 1);
  EXPECT_EQ(failure.recovery.detectSeconds, 0.3);
  EXPECT_EQ(failure.recovery.decideSeconds, 0.02);
  EXPECT_EQ(failure.recovery.waitSeconds, 0);
  EXPECT_EQ(failure.recovery.podsSeconds, 0);
  EXPECT_EQ(failure.recovery.formSeconds, 1.1);
  EXPECT_EQ(failure.recovery.restoreSeconds, 1.5);
  EXPECT_EQ(failure.recoverySeconds, 2.92);
  EXPECT_EQ(scene.status().lost.seconds, 2.92);
}

// Restarts in place; the round's beginning is known of some nodes.
RecoveryStatus recovery_with(const std::vector<std::optional<RoundBeginning>>& beginnings) {
  Scene scene(static_cast<int64_t>(beginnings.size()));
  scene.train();
  scene.fail_worker(0, 1, 0.25);
  scene.settle();
  scene.advance(seconds(1));
  bring_agents(scene, WorkerPhase::kLoading);
  for (size_t i = 0; i < beginnings.size(); ++i) {
    scene.agent(static_cast<int64_t>(i)).beginning = beginnings[i];
  }
  scene.settle();
  bring_agents(scene, WorkerPhase::kTraining);
  scene.settle();
  const FailureStatus& failure = *scene.status().lastFailure;
  EXPECT_EQ(failure.recoverySeconds, 1.25);
  EXPECT_EQ(sum_of(failure.recovery), 1.25);
  return failure.recovery;
}

TEST(Ledger, TheSlowestNodeTellsHowLongProcessesTookToLeaveAndToStart) {
  const RecoveryStatus parts =
      recovery_with({RoundBeginning{.abort_seconds = 0.125, .start_seconds = 0.5},
                     RoundBeginning{.abort_seconds = 0.25, .start_seconds = 0.0625}});
  EXPECT_EQ(parts.abortSeconds, 0.25);
  EXPECT_EQ(parts.respawnSeconds, 0.5);
  EXPECT_EQ(parts.formSeconds, 0.25);
}

TEST(Ledger, NodesThatTellOfMoreTimeThanPassedAreCut) {
  const RecoveryStatus parts =
      recovery_with({RoundBeginning{.abort_seconds = 0.75, .start_seconds = 9}});
  EXPECT_EQ(parts.abortSeconds, 0.75);
  EXPECT_EQ(parts.respawnSeconds, 0.25);
  EXPECT_EQ(parts.formSeconds, 0);
}

TEST(Ledger, OneNodeThatDoesNotTellLeavesThePartsUnknown) {
  const RecoveryStatus parts = recovery_with({RoundBeginning{0.25, 0.25}, std::nullopt});
  EXPECT_EQ(parts.abortSeconds, std::nullopt);
  EXPECT_EQ(parts.respawnSeconds, std::nullopt);
  EXPECT_EQ(parts.formSeconds, 1);
}

TEST(Ledger, OfALostPodItSaysHowLongTheNewOneTookAndWhenTheOldOneEnded) {
  Scene scene(2);
  scene.train();
  scene.seen.pods[1].phase = "Failed";
  scene.seen.pods[1].ended_at = scene.seen.wall_now - seconds(2);
  scene.settle();
  scene.advance(seconds(5));
  bring_pods(scene);
  scene.settle();
  ASSERT_EQ(scene.status().round, 2);
  scene.advance(seconds(1));
  bring_agents(scene, WorkerPhase::kTraining);
  scene.settle();
  const FailureStatus& failure = *scene.status().lastFailure;
  EXPECT_EQ(failure.action, "RecreatePod");
  EXPECT_EQ(failure.recovery.detectSeconds, 2);
  EXPECT_EQ(failure.recovery.podsSeconds, 5);
  EXPECT_EQ(failure.recovery.formSeconds, 1) << "first seen when the ranks already train";
  EXPECT_EQ(failure.recovery.restoreSeconds, 0);
  EXPECT_EQ(failure.recoverySeconds, 8);
}

TEST(Ledger, ASilentAgentFailedWhenItWasLastHeard) {
  Scene scene(2);
  scene.train();
  scene.advance(seconds(31));
  scene.seen.agents["job-worker-0-1-uid"].last_heard = scene.now;
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->reason, "AgentSilent");
  EXPECT_EQ(scene.status().lastFailure->recovery.detectSeconds, 31);
  EXPECT_EQ(scene.status().lastFailure->time, rfc3339_micro(scene.seen.wall_now - seconds(31)));
}

TEST(Ledger, TheTimeThatARestartIsHeldBackIsAPartOfItsOwn) {
  Scene scene(1);
  scene.train();
  for (int i = 0; i < 4; ++i) {
    scene.advance(seconds(1));
    scene.add_agent(0);
    scene.fail_worker(0, 1, 0.25);
    scene.settle();
    scene.advance(seconds(5));
    scene.add_agent(0);
    scene.settle();
  }
  const auto& failures = scene.status().failures;
  ASSERT_EQ(failures.size(), 4u);
  EXPECT_EQ(failures[0].recovery.waitSeconds, 0);
  EXPECT_EQ(failures[1].recovery.waitSeconds, 0.75) << "a second from the failure on";
  EXPECT_EQ(failures[3].recovery.waitSeconds, 3.75);
  EXPECT_EQ(failures[3].recovery.formSeconds, 1.25);
  EXPECT_EQ(failures[3].recoverySeconds, 5.25);
}

TEST(Ledger, SaysWhereTheStateWasThatTrainingResumedFrom) {
  struct Case {
    StorageState storage;
    int64_t step;
    std::string from;
  };
  const Case cases[] = {{{.resumed_step = 99, .from_memory = true}, 99, "memory"},
                        {{.resumed_step = 50}, 50, "storage"},
                        {{.resumed_step = 0}, 0, ""},
                        {{.resumed_step = -1}, 101, ""}};
  for (const Case& row : cases) {
    SCOPED_TRACE(row.from);
    Scene scene(1);
    scene.train();
    bring_agents(scene, WorkerPhase::kTraining, 100);
    scene.settle();
    scene.fail_worker(0, 1, 0.1);
    scene.settle();
    bring_agents(scene, WorkerPhase::kTraining, 101);  // it has trained on since
    scene.agent(0).storage = row.storage;
    scene.settle();
    EXPECT_EQ(scene.status().lastFailure->resumedStep, row.step);
    EXPECT_EQ(scene.status().lastFailure->resumedFrom, row.from);
    EXPECT_EQ(scene.status().lost.steps, std::max<int64_t>(0, 100 - row.step));
  }
}

TEST(Ledger, StepsThatAreDoneAgainAreCountedOnceForEachFailure) {
  Scene scene(1);
  scene.train();
  bring_agents(scene, WorkerPhase::kTraining, 100);
  scene.settle();
  scene.fail_worker(0, 1, 0.1);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->step, 100);
  EXPECT_EQ(scene.status().lastFailure->resumedStep, -1);
  scene.add_agent(0, WorkerPhase::kLoading);  // and fails before its first step
  scene.fail_worker(0, 1, 0.1);
  scene.settle();
  EXPECT_EQ(scene.status().lost.steps, 0);
  EXPECT_EQ(scene.status().lastFailure->step, 100);
  bring_agents(scene, WorkerPhase::kTraining, 60);
  scene.settle();
  EXPECT_EQ(scene.status().lost.steps, 40);
  EXPECT_EQ(scene.status().lastFailure->resumedStep, 60);
  bring_agents(scene, WorkerPhase::kTraining, 80);  // not as far as the first attempt
  scene.settle();
  EXPECT_EQ(scene.status().lost.steps, 40);
  scene.fail_worker(0, 1, 0.1);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->attempt, 3);
  EXPECT_EQ(scene.status().lastFailure->step, 80);
  EXPECT_EQ(scene.status().lastFailure->furthestStep, 100);
  bring_agents(scene, WorkerPhase::kTraining, 60);
  scene.settle();
  EXPECT_EQ(scene.status().lost.steps, 60);
}

TEST(Ledger, ACommandThatTellsItsStepsLateLosesThemAllTheSame) {
  Scene scene(1);
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.command = {"sh"};
  scene.train();
  bring_agents(scene, WorkerPhase::kTraining, 10);
  scene.settle();
  scene.fail_worker(0, 137, 0.1, "Signal");
  scene.settle();
  scene.add_agent(0);  // runs, but has reported no progress yet
  scene.settle();
  EXPECT_EQ(scene.status().state, "Running");
  EXPECT_EQ(scene.status().lost.steps, 0);
  bring_agents(scene, WorkerPhase::kTraining, 4);
  scene.settle();
  EXPECT_EQ(scene.status().lost.steps, 6);
}

TEST(Ledger, AFailureDuringARecoveryBeginsAnEntryOfItsOwnAndNoTimeCountsTwice) {
  Scene scene(1);
  scene.train();
  scene.fail_worker(0, 1, 1);
  scene.settle();
  scene.advance(seconds(4));
  scene.add_agent(0, WorkerPhase::kLoading);
  scene.fail_worker(0, 1, 1);
  scene.settle();
  EXPECT_EQ(scene.status().lost.seconds, 4) << "from the first failure to the second";
  scene.advance(seconds(9));
  scene.add_agent(0);
  scene.settle();
  EXPECT_EQ(scene.status().failures[0].recoverySeconds, 0) << "the first recovery never finished";
  EXPECT_EQ(scene.status().failures[1].recoverySeconds, 10);
  EXPECT_EQ(scene.status().lost.seconds, 14);
}

TEST(Ledger, AFailureFromBeforeTheLastOneWasOverBeginsWhereThatEnded) {
  Scene scene(2);
  scene.train();
  scene.fail_worker(0, 1, 1);
  scene.settle();
  scene.advance(seconds(4));
  for (int64_t i = 0; i < 2; ++i) scene.add_agent(i);
  scene.settle();
  ASSERT_EQ(scene.status().lastFailure->recoverySeconds, 5);
  scene.advance(seconds(2));
  for (int64_t i = 0; i < 2; ++i) scene.add_agent(i);
  scene.fail_worker(1, 1, 100);  // e.g. because a clock is wrong
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->time, rfc3339_micro(scene.seen.wall_now - seconds(2)));
  EXPECT_EQ(scene.status().lastFailure->recovery.detectSeconds, 2);
}

// A job of one node that failed at step 20 and resumed from another step after 3 s.
Scene resumed_from(int64_t step) {
  Scene scene(1);
  scene.train();
  bring_agents(scene, WorkerPhase::kTraining, 20);
  scene.settle();
  scene.fail_worker(0, 1, 1);
  scene.settle();
  scene.advance(seconds(2));
  bring_agents(scene, WorkerPhase::kTraining, step);
  scene.agent(0).storage = StorageState{.resumed_step = step};
  scene.settle();
  return scene;
}

TEST(Ledger, SaysHowLongItTookToDoTheLostStepsAgain) {
  Scene scene = resumed_from(15);
  EXPECT_EQ(scene.status().lastFailure->recoverySeconds, 3);
  EXPECT_FALSE(scene.status().lastFailure->recovery.recomputeSeconds.has_value());
  scene.advance(seconds(4));
  bring_agents(scene, WorkerPhase::kTraining, 19);
  scene.settle();
  EXPECT_FALSE(scene.status().lastFailure->recovery.recomputeSeconds.has_value());
  scene.advance(seconds(2));
  bring_agents(scene, WorkerPhase::kTraining, 21);
  scene.settle();
  scene.advance(seconds(9));
  bring_agents(scene, WorkerPhase::kTraining, 30);
  scene.settle();
  EXPECT_EQ(scene.status().lastFailure->recovery.recomputeSeconds, 6);
  EXPECT_EQ(scene.status().failures[0], scene.status().lastFailure);
  EXPECT_EQ(scene.status().lastFailure->recoverySeconds, 3) << "it is no part of this";
}

TEST(Ledger, ARoundThatBeginsMeanwhileLeavesItUnknown) {
  Scene scene = resumed_from(15);
  scene.seen.job.spec.suspend = true;
  scene.settle();
  scene.seen.pods.clear();
  scene.advance(std::chrono::hours(5));
  scene.seen.job.spec.suspend = false;
  scene.settle();
  bring_pods(scene);
  scene.settle();
  ASSERT_EQ(scene.status().round, 3);
  bring_agents(scene, WorkerPhase::kTraining, 30);
  scene.settle();
  EXPECT_FALSE(scene.status().lastFailure->recovery.recomputeSeconds.has_value());
}

TEST(Ledger, NothingIsDoneAgainIfNoStepWasLost) {
  Scene scene = resumed_from(20);
  EXPECT_EQ(scene.status().lastFailure->recovery.recomputeSeconds, 0);
}

TEST(Ledger, ASuspensionDuringARecoveryEndsWhatItCosts) {
  Scene scene(1);
  scene.train();
  scene.fail_worker(0, 1, 1);
  scene.settle();
  scene.advance(seconds(2));
  scene.seen.job.spec.suspend = true;
  scene.settle();
  EXPECT_EQ(scene.status().lost.seconds, 3);
  scene.advance(std::chrono::hours(5));
  scene.settle();
  EXPECT_EQ(scene.status().lost.seconds, 3);
}

TEST(Ledger, WhatCompletesBeforeItWasSeenToTrainHasRecovered) {
  Scene scene(1);
  scene.train();
  scene.fail_worker(0, 1, 1);
  scene.settle();
  scene.advance(seconds(2));
  AgentState& state = scene.add_agent(0);
  state.phase = "Completed";
  scene.settle();
  EXPECT_EQ(scene.status().state, "Complete");
  EXPECT_EQ(scene.status().lastFailure->recoverySeconds, 3);
  EXPECT_EQ(scene.status().lost.seconds, 3);
}

TEST(Ledger, TimeTrainedIsFromAllRanksTrainingToTheFailureTheSuspensionOrTheEnd) {
  Scene scene(1);
  scene.train();
  scene.advance(seconds(50));
  scene.add_agent(0);
  scene.fail_worker(0, 1, 2);
  scene.settle();
  EXPECT_EQ(scene.status().trainedSeconds, 48);
  scene.advance(seconds(5));
  scene.add_agent(0);
  scene.settle();
  EXPECT_EQ(scene.status().trainedSeconds, 48);
  scene.advance(seconds(30));
  scene.seen.job.spec.suspend = true;
  scene.settle();
  EXPECT_EQ(scene.status().trainedSeconds, 78);
  EXPECT_EQ(scene.status().lost.seconds, 7);
  scene.advance(seconds(1000));
  scene.seen.pods.clear();
  scene.seen.job.spec.suspend = false;
  scene.settle();
  bring_pods(scene);
  scene.settle();
  scene.add_agent(0);
  scene.settle();
  scene.advance(seconds(20));
  scene.add_agent(0).phase = "Completed";
  scene.settle();
  EXPECT_EQ(scene.status().state, "Complete");
  EXPECT_EQ(scene.status().trainedSeconds, 98);
  EXPECT_EQ(scene.status().lost.seconds, 7);
}

TEST(Ledger, AFailureThatEndsTheJobHasNoRecovery) {
  Scene scene(1);
  scene.seen.job.spec.failure.maxRestarts = 0;
  scene.train();
  scene.fail_worker(0, 1, 1);
  scene.settle();
  ASSERT_EQ(scene.status().failures.size(), 1u);
  EXPECT_EQ(scene.status().failures[0].action, "Fail");
  EXPECT_EQ(scene.status().failures[0].recovery, RecoveryStatus{});
  EXPECT_EQ(scene.status().lost.seconds, 0);
}

TEST(Ledger, AClockThatIsSetBackLeavesPartsThatAddUp) {
  Scene scene(1);
  scene.train();
  scene.fail_worker(0, 1, 2);
  scene.settle();
  scene.seen.wall_now -= std::chrono::hours(3);
  scene.add_agent(0);
  scene.settle();
  const FailureStatus& failure = *scene.status().lastFailure;
  EXPECT_EQ(failure.recoverySeconds, 2);
  EXPECT_EQ(sum_of(failure.recovery), 2);
  EXPECT_EQ(scene.status().lost.seconds, 2);
}

TEST(Ledger, AFailureWhoseTimeCannotBeReadIsKeptAndCostsNothing) {
  TrainingJobStatus status;
  set_condition(status, {.type = kRestarting, .value = true});
  record_failure(status, {.time = "yesterday"});
  const WallTime now(std::chrono::hours(9));
  note_pods(status, now);
  note_recovered(status, now, RoundBeginning{1, 1});
  record_failure(status, {.time = rfc3339_micro(now)});
  EXPECT_EQ(status.lost, LostStatus{});
  ASSERT_EQ(status.failures.size(), 2u);
  EXPECT_EQ(status.failures[0].recovery, RecoveryStatus{});
}

TEST(Ledger, KeepsTheNewestEntriesAndOfOlderOnesTheEndOfTheLog) {
  TrainingJobStatus status;
  std::string log;
  for (int i = 0; i < 300; ++i) log += "\xc3\xa9";  // é, two bytes
  for (int i = 0; i < 25; ++i) record_failure(status, {.message = log});
  ASSERT_EQ(status.failures.size(), kFailuresKept);
  EXPECT_EQ(status.failures.front().number, 16);
  EXPECT_EQ(status.failures.back().number, 25);
  EXPECT_EQ(status.failures.back().message, log);
  EXPECT_EQ(status.failures.front().message.size(), 160u);
  EXPECT_EQ(status.failures.front().message.front(), '\xc3');
}

// Does a random thing that can happen to a job.
void disturb(Scene& scene, Random& random) {
  const int64_t nodes = scene.seen.job.spec.nodes;
  const auto index = static_cast<int64_t>(random.below(static_cast<uint64_t>(nodes)));
  const bool formed = !scene.status().worldHash.empty();
  switch (random.below(6)) {
    case 0:
      bring_pods(scene);
      if (formed) bring_agents(scene, WorkerPhase::kForming);
      break;
    case 1:
      bring_pods(scene);
      if (!formed) break;
      bring_agents(scene, WorkerPhase::kTraining, static_cast<int64_t>(random.below(200)));
      break;
    case 2:
      if (!formed) break;
      bring_pods(scene);
      bring_agents(scene, WorkerPhase::kTraining, static_cast<int64_t>(random.below(200)));
      scene.fail_worker(index, 1, static_cast<double>(random.below(3000)) / 1000);
      break;
    case 3:
      if (!scene.seen.pods.empty()) scene.seen.pods[0].terminating = true;
      break;
    case 4:
      scene.seen.job.spec.suspend = random.below(4) == 0;
      break;
    default:
      scene.advance(milliseconds(random.below(20'000)));
  }
}

// Returns how many failures the plan recorded and did not count as restarts. The last one is of an
// agent that is silent.
int64_t settle_and_see_uncounted(Scene& scene) {
  const auto number = [&] {
    return scene.status().lastFailure ? scene.status().lastFailure->number : 0;
  };
  const int64_t before = number() - scene.status().restarts;
  scene.settle();
  const int64_t more = number() - scene.status().restarts - before;
  EXPECT_GE(more, 0) << "a failure was counted twice";
  if (more > 0) {
    EXPECT_EQ(scene.status().lastFailure->reason, "AgentSilent");
  }
  return more;
}

TEST(Ledger, WhateverHappensRestartsAreCountedOnceAndPartsAddUp) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed, 3);
    Scene scene(1 + static_cast<int64_t>(random.below(3)));
    scene.seen.job.spec.failure.maxRestarts = 1000;
    scene.train();
    const WallTime began = scene.seen.wall_now;
    int64_t lost_with_others = 0;  // silent agents, lost with a failure that was counted
    for (int i = 0; i < 150; ++i) {
      const TrainingJobStatus before = scene.status();
      disturb(scene, random);
      for (int pass = 0; pass < 3; ++pass) lost_with_others += settle_and_see_uncounted(scene);
      const TrainingJobStatus& status = scene.status();
      ASSERT_LE(status.failures.size(), kFailuresKept);
      const int64_t number = status.lastFailure ? status.lastFailure->number : 0;
      ASSERT_LE(status.restarts, number) << "one entry for each restart";
      ASSERT_LE(number, before.lastFailure ? before.lastFailure->number + 3 : 3);
      ASSERT_GE(status.lost.seconds, before.lost.seconds);
      ASSERT_GE(status.lost.steps, before.lost.steps);
      ASSERT_GE(status.trainedSeconds, before.trainedSeconds);
      const double spent = to_seconds(scene.seen.wall_now - began);
      // Tolerance: condition times are whole seconds, and a failure may be reported three seconds
      // late.
      ASSERT_LE(status.trainedSeconds + status.lost.seconds,
                spent + 4 * static_cast<double>(1 + status.restarts))
          << "no time counts twice";
      for (size_t k = 0; k < status.failures.size(); ++k) {
        const FailureStatus& failure = status.failures[k];
        const auto from_end = static_cast<int64_t>(status.failures.size() - 1 - k);
        ASSERT_EQ(failure.number, number - from_end);
        if (failure.recoverySeconds == 0) continue;
        ASSERT_NEAR(sum_of(failure.recovery), failure.recoverySeconds, 1e-6);
      }
      if (number == 0) continue;
      ASSERT_EQ(status.failures.back(), status.lastFailure);
      if (!is_true(status, kRunning)) continue;
      ASSERT_FALSE(is_true(status, kRestarting)) << "a job is either running or restarting";
    }
    EXPECT_LT(lost_with_others, scene.status().restarts);
    EXPECT_GT(scene.status().restarts, 2);
  }
}

TEST(Deadline, FailsTheJobOnceItWasActiveForTooLong) {
  Scene scene(2);
  scene.seen.job.spec.activeDeadlineSeconds = 600;
  scene.train();
  scene.advance(seconds(599));
  for (int64_t i = 0; i < 2; ++i) scene.add_agent(i);
  Plan plan = scene.plan();
  EXPECT_FALSE(is_true(written(scene, plan), kFailed));
  ASSERT_TRUE(plan.requeue_at);
  EXPECT_LE(*plan.requeue_at, scene.now + seconds(1)) << "only time triggers the pass";
  scene.advance(seconds(1));
  plan = scene.plan();
  EXPECT_TRUE(is_decision(plan)) << plan.why;
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kFailed).reason, "DeadlineExceeded");
  EXPECT_NE(condition(scene.status(), kFailed).message.find("activeDeadlineSeconds: 600"),
            std::string::npos);
  EXPECT_EQ(condition(scene.status(), kRunning).status, "False");
  EXPECT_FALSE(scene.status().completionTime.empty());
  EXPECT_EQ(scene.status().state, "Failed");
  EXPECT_EQ(only<PutAssignment>(scene.plan()).size(), 2u) << "its agents are asked to exit";
}

TEST(Deadline, ASuspensionBeginsItAnew) {
  Scene scene(1);
  scene.seen.job.spec.activeDeadlineSeconds = 600;
  scene.train();
  scene.advance(seconds(500));
  scene.seen.job.spec.suspend = true;
  scene.settle();
  scene.advance(seconds(5000));
  scene.settle();
  EXPECT_FALSE(is_true(scene.status(), kFailed)) << "no time counts while it is suspended";
  scene.seen.pods.clear();
  scene.seen.job.spec.suspend = false;
  scene.settle();
  scene.advance(seconds(599));
  EXPECT_FALSE(is_true(written(scene, scene.plan()), kFailed));
  scene.advance(seconds(1));
  EXPECT_TRUE(is_true(written(scene, scene.plan()), kFailed));
}

TEST(Deadline, WorkThatIsDoneIsCompleteHoweverLate) {
  Scene scene(1);
  scene.seen.job.spec.activeDeadlineSeconds = 600;
  scene.train();
  scene.agent(0).phase = "Completed";
  scene.advance(seconds(9000));
  EXPECT_TRUE(is_true(written(scene, scene.plan()), kComplete));
}

}  // namespace
}  // namespace lockstep::plan
