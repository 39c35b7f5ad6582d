#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "common/api/training_job_fields.h"
#include "common/api/worker_config.h"
#include "controller/plan/pod_failure.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::seconds;

struct RuleCase {
  const char* name;
  std::vector<FailureRule> rules;
  int64_t exit_code;  // of node 1's worker
  const char* reason;
  const char* action;  // of lastFailure
  const char* members;
  int64_t restarts;
};

TEST(FailureRules, TheFirstThatSpeaksOfTheFailureDecides) {
  const RuleCase cases[] = {
      {"none", {}, 77, "Error", "RestartInPlace", "1,1", 1},
      {"of another code",
       {{.exitCodes = {4, 5}, .action = "Fail"}},
       77,
       "Error",
       "RestartInPlace",
       "1,1",
       1},
      {"by code", {{.exitCodes = {76, 77}, .action = "Fail"}}, 77, "Error", "Fail", "1,1", 0},
      {"by a signal's code",
       {{.exitCodes = {139}, .action = "RecreatePod"}},
       139,
       "Signal",
       "RecreatePod",
       "1,2",
       1},
      {"by event", {{.event = "OOMKilled", .action = "Fail"}}, 137, "OOMKilled", "Fail", "1,1", 0},
      {"by event, of another code",
       {{.exitCodes = {9}, .event = "Signal", .action = "Fail"}},
       137,
       "Signal",
       "RestartInPlace",
       "1,1",
       1},
      {"the first of two",
       {{.event = "Error", .action = "Ignore"}, {.exitCodes = {77}, .action = "Fail"}},
       77,
       "Error",
       "RestartInPlace",
       "1,1",
       0},
      {"ranks apply it themselves, and gave up",
       {{.event = "LossNotFinite", .action = "SkipBatch"}},
       kExitNotFinite,
       "LossNotFinite",
       "Fail",
       "1,1",
       0},
      {"a loss that is not finite is an error, too",
       {{.event = "Error", .action = "RestartInPlace"}},
       kExitNotFinite,
       "LossNotFinite",
       "RestartInPlace",
       "1,1",
       1},
      {"a restart where none would help by itself",
       {{.exitCodes = {kExitNotFinite}, .action = "RestartInPlace"}},
       kExitNotFinite,
       "Error",
       "RestartInPlace",
       "1,1",
       1},
  };
  for (const RuleCase& test : cases) {
    SCOPED_TRACE(test.name);
    Scene scene(2);
    scene.seen.job.spec.failure.rules = test.rules;
    scene.train();
    scene.fail_worker(1, test.exit_code, 1, test.reason);
    const Plan plan = scene.plan();
    ASSERT_TRUE(is_decision(plan)) << plan.why;
    const TrainingJobStatus status = written(scene, plan);
    EXPECT_EQ(status.lastFailure->action, test.action);
    EXPECT_EQ(status.members, test.members);
    EXPECT_EQ(status.restarts, test.restarts);
    EXPECT_EQ(status.lastFailure->number, 1) << "the ledger has every failure";
    EXPECT_EQ(is_true(status, kFailed), status.lastFailure->action == "Fail");
  }
}

TEST(FailureRules, SayWhichOneDecided) {
  Scene scene(1);
  scene.seen.job.spec.failure.rules = {{.exitCodes = {7}, .action = "Fail"},
                                       {.event = "Error", .action = "Fail"}};
  scene.train();
  scene.fail_worker(0, 3, 1);
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kFailed).reason, "FailureRule");
  const std::string& message = condition(scene.status(), kFailed).message;
  EXPECT_NE(message.find("spec.failure.rules[1] matches: action Fail"), std::string::npos)
      << message;
}

TEST(FailureRules, AnIgnoredFailureRestartsEvenWhereNoRestartIsLeft) {
  Scene scene(2);
  scene.seen.job.spec.failure.maxRestarts = 0;
  scene.seen.job.spec.failure.rules = {{.event = "Preempted", .action = "Ignore"}};
  scene.train();
  for (int i = 1; i <= 3; ++i) {
    PodView& pod = scene.seen.pods.back();
    pod.terminating = true;
    pod.disruption = "PreemptionByScheduler";
    scene.settle();
    EXPECT_EQ(scene.status().restarts, 0);
    EXPECT_EQ(scene.status().lastFailure->number, i);
    EXPECT_EQ(scene.status().members, "1," + std::to_string(i + 1));
    scene.add_pod(1, i + 1).created_in_round = scene.status().round;
    scene.settle();
    for (int64_t index = 0; index < 2; ++index) scene.add_agent(index);
    scene.settle();
    EXPECT_EQ(scene.status().state, "Running");
  }
  scene.fail_worker(0, 1, 1);
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kFailed).reason, "TooManyRestarts");
}

TEST(FailureRules, APodThatIsToBeMadeAnewIsDeletedAndTheOthersStay) {
  Scene scene(3);
  scene.seen.job.spec.failure.rules = {{.exitCodes = {13}, .action = "RecreatePod"}};
  scene.train();
  scene.fail_worker(1, 13, 1);
  scene.settle();
  const Plan plan = scene.plan();
  ASSERT_EQ(only<DeletePod>(plan).size(), 1u);
  EXPECT_EQ(only<DeletePod>(plan)[0].name, "job-worker-1-1");
  ASSERT_EQ(only<CreatePod>(plan).size(), 1u);
  EXPECT_EQ(only<CreatePod>(plan)[0].name, "job-worker-1-2");
}

TEST(FailureRules, KnowEveryReasonThatAPodsEndHas) {
  std::set<std::string> known;
  std::istringstream words{std::string(kFailureEvents)};
  for (std::string word; words >> word;) known.insert(word);
  const char* phases[] = {"Failed", "Running"};
  const char* reasons[] = {
      "",          "Evicted",   "Preempting", "NodeLost", "NodeShutdown", "NodeAffinity",
      "NoAddress", "OOMKilled", "StartError", "OutOfcpu"};
  const char* disruptions[] = {"",
                               "PreemptionByScheduler",
                               "EvictionByEvictionAPI",
                               "DeletionByTaintManager",
                               "DeletionByPodGC",
                               "TerminationByKubelet"};
  for (const char* phase : phases) {
    for (const char* reason : reasons) {
      for (const char* disruption : disruptions) {
        const PodView pod{.phase = phase, .reason = reason, .disruption = disruption};
        EXPECT_TRUE(known.contains(end_of_pod(pod))) << end_of_pod(pod);
      }
    }
  }
  for (const char* waiting : {"ErrImagePull", "CreateContainerConfigError"}) {
    const PodView pod{.phase = "Pending", .waiting = waiting};
    EXPECT_TRUE(known.contains(start_trouble(pod))) << start_trouble(pod);
  }
}

// A job whose pods have just been created; node 1's pod is Pending.
Scene pending_scene() {
  Scene scene(2);
  scene.seen.job.spec.failure.pendingTimeoutSeconds = 100;
  scene.settle();
  for (int64_t i = 0; i < 2; ++i) scene.add_pod(i).created_at = scene.seen.wall_now;
  scene.seen.pods[1].phase = "Pending";
  return scene;
}

TEST(PendingTimeout, APodThatDoesNotStartInTimeIsMadeAnewAndSaysWhy) {
  struct Case {
    const char* waiting;
    bool scheduled;
    const char* reason;
    const char* message;
  };
  const Case cases[] = {
      {"", false, "Unschedulable", "0/3 nodes are available"},
      {"", true, "PodPending", ""},
      {"ErrImagePull", true, "ImagePullFailed", "no such image"},
      {"CreateContainerConfigError", true, "ContainerCreateFailed", "no such secret"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.reason);
    Scene scene = pending_scene();
    PodView& pod = scene.seen.pods[1];
    pod.scheduled = test.scheduled;
    pod.waiting = test.waiting;
    (test.scheduled ? pod.waiting_message : pod.unscheduled_reason) = test.message;
    scene.advance(seconds(99));
    Plan plan = scene.plan();
    EXPECT_EQ(written(scene, plan).restarts, 0);
    EXPECT_EQ(plan.requeue_at, scene.now + seconds(1)) << "nothing else triggers the next pass";
    scene.advance(seconds(1));
    scene.settle();
    EXPECT_EQ(scene.status().restarts, 1);
    EXPECT_EQ(scene.status().members, "1,2") << "the running pod is kept";
    EXPECT_EQ(scene.status().lastFailure->reason, test.reason);
    EXPECT_EQ(scene.status().lastFailure->message, test.message);
  }
}

TEST(PendingTimeout, WithoutOneAPodMayWaitForEver) {
  Scene scene = pending_scene();
  scene.seen.job.spec.failure.pendingTimeoutSeconds = 0;
  scene.advance(std::chrono::hours(1000));
  EXPECT_EQ(written(scene, scene.plan()).restarts, 0);
}

TEST(PendingTimeout, ARuleMayFailTheJobForIt) {
  Scene scene = pending_scene();
  scene.seen.job.spec.failure.rules = {{.event = "ImagePullFailed", .action = "Fail"}};
  scene.seen.pods[1].waiting = "ImagePullBackOff";
  scene.seen.pods[1].scheduled = true;
  scene.advance(seconds(100));
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kFailed).reason, "FailureRule");
}

TEST(PendingTimeout, PodsThatWaitForTheSameShortageAreOneFailure) {
  Scene scene(4);
  scene.seen.job.spec.failure.pendingTimeoutSeconds = 100;
  scene.settle();
  for (int64_t i = 0; i < 4; ++i) {
    PodView& pod = scene.add_pod(i);
    pod.phase = "Pending";
    pod.created_at = scene.seen.wall_now + seconds(20 * i);
  }
  scene.advance(seconds(100));
  scene.settle();
  EXPECT_EQ(scene.status().restarts, 1);
  EXPECT_EQ(scene.status().members, "2,2,2,1") << "the last has waited for less than half as long";
}

}  // namespace
}  // namespace lockstep::plan
