// Pods of a large job are created in a window: at most 64 requests are open, and the next one
// follows as soon as one is answered.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>

#include "controller/loop/controller.h"
#include "tests/controller/sim/fake_store.h"
#include "tests/controller/support/fake_api.h"
#include "tests/controller/support/no_agents.h"

namespace lockstep::loop {
namespace {

constexpr int64_t kNodes = 300;

// A server that answers everything but creates of pods; those wait for the test.
struct CreatesTest : ::testing::Test {
  ManualClock clock;
  Timers timers{clock};
  Random random{1};
  plan::FakeApi api;
  plan::NoAgents agents;
  sim::FakeStore store;
  Controller controller{api, agents, timers, random, {.key = "k"}, [] {}};
  std::deque<plan::FakeApi::Asked> creates;
  size_t created = 0;

  CreatesTest() {
    store.create(kTrainingJobs,
                 {{"apiVersion", "lockstep.dev/v1alpha1"},
                  {"kind", "TrainingJob"},
                  {"metadata", {{"name", "job"}, {"namespace", "ns"}}},
                  {"spec", {{"nodes", kNodes}, {"image", "i"}, {"command", {"train"}}}}},
                 timers.wall_now());
    controller.start();
    serve();
  }
  // Answers until only creates of pods are open.
  void serve() {
    do {
      while (!api.asked.empty()) {
        plan::FakeApi::Asked asked = std::move(api.asked.front());
        api.asked.pop_front();
        const bool is_pod = asked.request.type.plural == kPods.plural;
        const bool is_check = asked.request.query.contains("dryRun");
        if (is_pod && !is_check && asked.request.verb == ApiVerb::kCreate) {
          creates.push_back(std::move(asked));
          continue;
        }
        asked.done(is_check ? ApiReply{.outcome = ApiOutcome::kOk, .body = asked.request.body}
                            : store.serve(asked.request, timers.wall_now(), "controller"));
      }
      timers.run_due();
    } while (!api.asked.empty());
  }
  void answer_first() {
    plan::FakeApi::Asked first = std::move(creates.front());
    creates.pop_front();
    first.done(store.serve(first.request, timers.wall_now(), "controller"));
    ++created;
    serve();
  }
};

TEST_F(CreatesTest, TheJobIsCountedByItsState) {
  EXPECT_EQ(controller.job_counts(), (Controller::JobCounts{{{"ns", "Pending"}, 1}}));
}

TEST_F(CreatesTest, OneComesFirstAndTwoForEachThatWasCreated) {
  for (const size_t open : {1u, 2u, 3u, 4u, 5u}) {
    EXPECT_EQ(creates.size(), open);
    answer_first();
  }
}

TEST_F(CreatesTest, AtMostSixtyFourAreOpenAndNoneWaitsForTheOthers) {
  size_t most = 0;
  while (!creates.empty()) {
    most = std::max(most, creates.size());
    const bool is_full = creates.size() == 64;
    const size_t left = kNodes - created - creates.size();
    answer_first();
    if (is_full && left > 0) {
      EXPECT_EQ(creates.size(), 64u);
    }
  }
  EXPECT_EQ(most, 64u);
  EXPECT_EQ(created, static_cast<size_t>(kNodes));
}

TEST_F(CreatesTest, AfterARefusalNoOtherOneIsSent) {
  while (creates.size() < 8) answer_first();
  plan::FakeApi::Asked first = std::move(creates.front());
  creates.pop_front();
  first.done({.outcome = ApiOutcome::kForbidden, .message = "exceeded quota: pods"});
  serve();
  // After the last answer, the job is planned again.
  while (creates.size() > 1) {
    const size_t open = creates.size();
    answer_first();
    EXPECT_EQ(creates.size(), open - 1);
  }
}

}  // namespace
}  // namespace lockstep::loop
