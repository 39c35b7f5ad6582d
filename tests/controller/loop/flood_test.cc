// Many jobs at the same time: the number of plans that wait for the API server is limited, and a
// job that lost a pod passes the others.
#include <gtest/gtest.h>

#include "controller/loop/controller.h"
#include "tests/controller/support/fake_api.h"
#include "tests/controller/support/no_agents.h"

namespace lockstep::loop {
namespace {

constexpr size_t kPlansMax = 3;

Json job(const std::string& name, const std::string& version, const std::string& image = "i") {
  return {{"apiVersion", "lockstep.dev/v1alpha1"},
          {"kind", "TrainingJob"},
          {"metadata",
           {{"namespace", "ns"},
            {"name", name},
            {"uid", "uid-" + name},
            {"resourceVersion", version},
            {"creationTimestamp", "2026-01-01T00:00:00Z"},
            {"generation", 1}}},
          {"spec", {{"nodes", 1}, {"image", image}, {"command", {"train"}}}}};
}

// A failed pod of the job, on which somebody put another job's label.
Json failed_pod_of(const std::string& name) {
  return {{"metadata",
           {{"namespace", "ns"},
            {"name", name + "-worker-0-1"},
            {"uid", "uid-pod"},
            {"resourceVersion", "50"},
            {"labels", {{"lockstep.dev/job-name", "a"}}},
            {"ownerReferences",
             {{{"kind", "TrainingJob"},
               {"name", name},
               {"uid", "uid-" + name},
               {"controller", true}}}}}},
          {"status", {{"phase", "Failed"}}}};
}

struct FloodTest : ::testing::Test {
  FloodTest() {
    controller.start();
    Json jobs = Json::array();
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) jobs.push_back(job(name, "7"));
    api.answer(list(std::move(jobs)));
    api.answer(list(Json::array()));
    timers.run_due();
  }
  static ApiReply list(Json items) {
    return {.outcome = ApiOutcome::kOk,
            .body = {{"metadata", {{"resourceVersion", "10"}}}, {"items", std::move(items)}}};
  }
  ControllerOptions limited() {
    ControllerOptions options;
    options.key = "k";
    options.plans_at_server_max = kPlansMax;
    return options;
  }
  std::string asked_for(size_t i) const {
    const ApiRequest& request = api.asked[i].request;
    return request.name.empty() ? string_or(request.body["metadata"], "name", "") : request.name;
  }

  // Answers every request: pod checks succeed, all others fail. Returns the names of the jobs whose
  // pods were checked.
  std::string checked() {
    std::string names;
    for (int i = 0; i < 100 && !api.asked.empty(); ++i) {
      const bool is_check = api.asked.front().request.query.contains("dryRun");
      if (is_check) names += asked_for(0).substr(0, 1);
      api.answer({.outcome = is_check ? ApiOutcome::kOk : ApiOutcome::kUnavailable,
                  .body = Json::object()});
      timers.run_due();
    }
    return names;
  }
  void add(const Json& job) {
    for (const auto& watching : api.watches) {
      if (watching->request.type.plural != kTrainingJobs.plural) continue;
      watching->handler.on_events({{.type = WatchEventType::kAdded, .object = job}});
    }
    timers.run_due();
  }

  ManualClock clock;
  Timers timers{clock};
  Random random{1};
  plan::FakeApi api;
  plan::NoAgents agents;
  Controller controller{api, agents, timers, random, limited(), [] {}};
};

TEST_F(FloodTest, NoMorePlansAreBegunThanMayWaitForTheServer) {
  ASSERT_EQ(api.asked.size(), kPlansMax);
  EXPECT_EQ(controller.queue().size(), 3u);
  timers.run_due();
  EXPECT_EQ(api.asked.size(), kPlansMax);
  api.answer({.outcome = ApiOutcome::kUnavailable});  // ends a's plan
  timers.run_due();
  ASSERT_EQ(api.asked.size(), kPlansMax);
  EXPECT_EQ(asked_for(kPlansMax - 1).substr(0, 1), "d");
  EXPECT_EQ(api.asked.back().request.priority, ApiPriority::kRoutine);
}

TEST_F(FloodTest, AJobThatLostAPodPassesTheOthers) {
  ASSERT_EQ(api.asked.size(), kPlansMax);
  for (const auto& watching : api.watches) {
    if (watching->request.type.plural != kPods.plural) continue;
    watching->handler.on_events({{.type = WatchEventType::kAdded, .object = failed_pod_of("f")}});
  }
  timers.run_due();
  ASSERT_EQ(api.asked.size(), kPlansMax + 1);
  EXPECT_EQ(asked_for(kPlansMax).substr(0, 1), "f");
  EXPECT_EQ(api.asked.back().request.priority, ApiPriority::kUrgent);
}

TEST_F(FloodTest, OfManyJobsAlikeTheFirstFewAreChecked) {
  EXPECT_EQ(checked(), "abc") << "three at once, before there was an answer";
  add(job("g", "60", "another"));
  EXPECT_EQ(checked(), "g") << "its pods have another image";
  add(job("h", "61", "another"));
  EXPECT_EQ(checked(), "");
  clock.advance(std::chrono::seconds(61));
  add(job("k", "62", "another"));
  EXPECT_EQ(checked().substr(0, 1), "k") << "an acceptance expires after a minute";
}

}  // namespace
}  // namespace lockstep::loop
