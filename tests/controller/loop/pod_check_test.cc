// The API server checks a job's pod before the job's first round: when it does, and how its replies
// are read.
#include <gtest/gtest.h>

#include "controller/loop/controller.h"
#include "tests/controller/sim/connection.h"
#include "tests/controller/support/one_job.h"
#include "tests/controller/support/scene.h"

namespace lockstep::loop {
namespace {

using std::chrono::seconds;

std::vector<plan::CheckPod> checks(const plan::Plan& plan) {
  return plan::only<plan::CheckPod>(plan);
}

TEST(PodCheck, ComesFirstAndAloneAndOnceForEachGeneration) {
  plan::Scene scene(2);
  scene.seen.pod_check.reset();
  const plan::Plan first = scene.plan();
  ASSERT_EQ(checks(first).size(), 1u);
  EXPECT_EQ(first.actions.size(), 1u) << "nothing is decided before the answer";
  EXPECT_EQ(checks(first)[0].generation, 3);
  EXPECT_EQ(checks(first)[0].body["metadata"]["name"], "job-worker-0-1");
  scene.seen.pod_check.emplace();
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kValid));
  scene.seen.pod_check.reset();  // as in a new process
  EXPECT_TRUE(checks(scene.plan()).empty()) << "status shows that the check was done";
  ++scene.seen.job.metadata.generation;
  EXPECT_EQ(checks(scene.plan()).size(), 1u);
}

TEST(PodCheck, AnInvalidSpecIsNotSent) {
  plan::Scene scene(2);
  scene.seen.pod_check.reset();
  scene.seen.job.spec.train->batch.global = 1;
  EXPECT_TRUE(checks(scene.plan()).empty());
  EXPECT_TRUE(plan::is_decision(scene.plan()));
}

TEST(PodCheck, ARefusalIsAnInvalidSpecInTheServersWordsAndIsAskedForAgain) {
  plan::Scene scene(2);
  scene.seen.pod_check = {.refusal = "Pod \"job-worker-0-1\" is invalid: spec.containers[0].image",
                          .retry_at = scene.now + seconds(4)};
  plan::Plan plan = scene.plan();
  EXPECT_TRUE(plan::is_decision(plan));
  const Condition valid = plan::condition(plan::written(scene, plan), kValid);
  EXPECT_EQ(valid.status, "False");
  EXPECT_EQ(valid.reason, "InvalidSpec");
  EXPECT_NE(valid.message.find("spec.containers[0].image"), std::string::npos);
  EXPECT_EQ(plan::only<plan::EmitEvent>(plan).size(), 1u);
  scene.settle();
  plan = scene.plan();
  EXPECT_TRUE(plan.actions.empty()) << "the check is not repeated in each plan";
  EXPECT_EQ(plan.requeue_at, scene.now + seconds(4));
  scene.advance(seconds(4));
  EXPECT_EQ(checks(scene.plan()).size(), 1u);
  scene.seen.pod_check.emplace();
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kValid));
  EXPECT_EQ(scene.status().members, "1,1");
}

TEST(PodCheck, AJobWithARoundIsNotHeldUpByOne) {
  plan::Scene scene(2);
  scene.train();
  scene.seen.pod_check.reset();
  ++scene.seen.job.metadata.generation;
  EXPECT_TRUE(checks(scene.plan()).empty());
}

TEST(PodCheck, WhatIsChangedWhileAJobIsSuspendedIsCheckedBeforeItGoesOn) {
  plan::Scene scene(2);
  scene.train();
  scene.seen.pod_check.reset();
  scene.seen.job.spec.suspend = true;
  ++scene.seen.job.metadata.generation;
  scene.settle();
  ASSERT_TRUE(is_true(scene.status(), kSuspended)) << "suspending needs no check";
  scene.seen.pods.clear();
  scene.seen.job.spec.suspend = false;
  ++scene.seen.job.metadata.generation;
  ASSERT_EQ(checks(scene.plan()).size(), 1u);
  EXPECT_EQ(checks(scene.plan())[0].body["metadata"]["name"], "job-worker-0-2");
  scene.seen.pod_check.emplace();
  scene.settle();
  EXPECT_FALSE(is_true(scene.status(), kSuspended));
}

struct CheckedJob : plan::OneJobTest {
  std::string valid() const {
    const Json* status = find_member(api.document, "status");
    if (status == nullptr) return "";
    for (const Json& one : status->value("conditions", Json::array())) {
      if (one["type"] == kValid) return one["status"];
    }
    return "";
  }
};

TEST_F(CheckedJob, OneThatTheServerTakesIsMadeAfterOneCheck) {
  controller.start();
  pass(seconds(30));
  EXPECT_EQ(valid(), "True");
  EXPECT_EQ(api.checked, 1);
  EXPECT_GT(api.made, 0);
}

TEST_F(CheckedJob, OneThatTheServerRefusesIsInvalidUntilItTakesIt) {
  api.next_check = {.outcome = ApiOutcome::kForbidden,
                    .message =
                        "HTTP 403: pods \"job-worker-0-1\" is forbidden: error looking up "
                        "service account default/team"};
  controller.start();
  pass(seconds(1));
  EXPECT_EQ(valid(), "False");
  pass(seconds(120));
  EXPECT_EQ(valid(), "False");
  EXPECT_EQ(api.made, 0);
  EXPECT_GT(api.checked, 3) << "the service account may appear later";
  EXPECT_LT(api.checked, 12) << "the checks back off";
  api.next_check = {.outcome = ApiOutcome::kOk, .body = Json::object()};
  pass(seconds(61));
  EXPECT_EQ(valid(), "True");
  EXPECT_GT(api.made, 0);
}

TEST_F(CheckedJob, OneThatWasRefusedStaysSoWhileTheServerIsInTrouble) {
  api.next_check = {.outcome = ApiOutcome::kInvalid, .message = "HTTP 422: Pod is invalid"};
  controller.start();
  pass(seconds(1));
  EXPECT_EQ(valid(), "False");
  api.next_check = {.outcome = ApiOutcome::kUnavailable, .message = "HTTP 500"};
  const int before = api.checked;
  pass(seconds(120));
  EXPECT_GT(api.checked, before);
  EXPECT_EQ(valid(), "False");
  EXPECT_EQ(api.made, 0);
  api.next_check = {.outcome = ApiOutcome::kOk, .body = Json::object()};
  pass(seconds(61));
  EXPECT_EQ(valid(), "True");
}

TEST_F(CheckedJob, AServerThatIsBusyIsAskedLaterAndTheJobIsNotInvalid) {
  api.next_check = {.outcome = ApiOutcome::kThrottled,
                    .message = "HTTP 429: too many requests",
                    .retry_after = seconds(5)};
  controller.start();
  pass(seconds(4));
  EXPECT_EQ(api.checked, 1);
  EXPECT_EQ(valid(), "");
  EXPECT_EQ(api.made, 0);
  api.next_check = {.outcome = ApiOutcome::kOk, .body = Json::object()};
  pass(seconds(10));
  EXPECT_EQ(valid(), "True");
  EXPECT_GT(api.made, 0);
}

TEST_F(CheckedJob, AnswersThatSayNothingOfThePodHoldNothingUp) {
  const std::pair<ApiOutcome, const char*> answers[] = {
      {ApiOutcome::kInvalid,
       "HTTP 400: admission webhook \"w.example.com\" does not support dry run"},
      {ApiOutcome::kForbidden, "HTTP 403: pods \"p\" is forbidden: exceeded quota: team"},
      {ApiOutcome::kForbidden,
       "HTTP 403: pods is forbidden: User \"u\" cannot create resource \"pods\" in API group \"\""},
      {ApiOutcome::kUnauthorized, "HTTP 401: Unauthorized"},
      {ApiOutcome::kForbidden,
       "HTTP 403: pods \"p\" is forbidden: cannot set blockOwnerDeletion if an ownerReference "
       "refers "
       "to a resource you can't set finalizers on"},
      {ApiOutcome::kForbidden, "HTTP 403: pods \"p\" is forbidden: insufficient quota to consume"},
      {ApiOutcome::kForbidden,
       "HTTP 403: unable to create new content in namespace ns because it is being terminated"},
      {ApiOutcome::kUnavailable, "HTTP 500: failed calling webhook \"w.example.com\""},
      {ApiOutcome::kTimeout, "no answer"},
      {ApiOutcome::kNotFound, "HTTP 404: namespaces \"ns\" not found"},
      {ApiOutcome::kAlreadyExists, "HTTP 409: pods \"job-worker-0-1\" already exists"}};
  for (const auto& [outcome, message] : answers) {
    plan::OneJob server(timers);
    server.next_check = {.outcome = outcome, .message = message};
    Controller another(server, agents, timers, random, {}, [] {});
    another.start();
    pass(seconds(2));
    EXPECT_EQ(server.checked, 1) << message;
    EXPECT_GT(server.made, 0) << message;
    another.stop([] {});
    pass(seconds(1));
  }
}

}  // namespace
}  // namespace lockstep::loop
