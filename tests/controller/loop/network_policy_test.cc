// NetworkPolicies of jobs on a server that stores them, refuses them or does not know the kind.
#include <gtest/gtest.h>

#include "controller/loop/controller.h"
#include "controller/plan/network_policy.h"
#include "tests/controller/support/no_agents.h"
#include "tests/controller/support/one_job.h"

namespace lockstep::loop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// OneJob, with NetworkPolicies and a watch of them.
class PolicyServer final : public ApiClient {
 public:
  explicit PolicyServer(Timers& timers) : jobs(timers), timers_(timers) {
    jobs.next_pod = {.outcome = ApiOutcome::kOk, .body = Json::object()};
  }

  void send(ApiRequest request, Done done) override {
    if (request.type.plural != kNetworkPolicies.plural)
      return jobs.send(std::move(request), std::move(done));
    timers_.after(Duration{0}, [this, request = std::move(request), done = std::move(done)] {
      done(answer(request));
    });
  }
  std::unique_ptr<WatchHandle> watch(WatchRequest request, WatchHandler handler) override {
    if (request.type.plural != kNetworkPolicies.plural)
      return jobs.watch(std::move(request), std::move(handler));
    handler_ = std::move(handler);
    return std::make_unique<WatchHandle>();
  }

  // Somebody else's write; a null policy is a deletion.
  void change(const Json& policy) {
    const Json before = std::exchange(stored, policy);
    Json told = policy.is_null() ? before : policy;
    told["metadata"]["resourceVersion"] = std::to_string(++version_);
    if (!policy.is_null()) stored = told;
    handler_.on_events({{policy.is_null() ? WatchEventType::kDeleted : WatchEventType::kModified,
                         std::move(told)}});
  }

  plan::OneJob jobs;
  Json stored;
  ApiReply next_list{.outcome = ApiOutcome::kOk};   // kOk: lists what is stored
  ApiReply next_write{.outcome = ApiOutcome::kOk};  // kOk: stores it
  int lists = 0, creates = 0, replaces = 0, deletes = 0;

 private:
  ApiReply answer(const ApiRequest& request) {
    EXPECT_NE(request.verb, ApiVerb::kGet) << "the controller has no right to it";
    if (request.verb == ApiVerb::kList) {
      ++lists;
      EXPECT_EQ(request.query.at("labelSelector"), "app.kubernetes.io/managed-by=lockstep");
      if (!next_list.ok()) return next_list;
      const Json items = stored.is_null() ? Json::array() : Json::array({stored});
      return {.outcome = ApiOutcome::kOk,
              .body = {{"metadata", {{"resourceVersion", std::to_string(version_)}}},
                       {"items", items}}};
    }
    ++(request.verb == ApiVerb::kCreate    ? creates
       : request.verb == ApiVerb::kReplace ? replaces
                                           : deletes);
    if (!next_write.ok()) return next_write;
    if (request.verb == ApiVerb::kDelete) {
      EXPECT_EQ(request.body["preconditions"]["uid"], stored["metadata"]["uid"]);
      stored = nullptr;
      ++version_;
      return {.outcome = ApiOutcome::kOk, .body = Json::object()};
    }
    if (request.verb == ApiVerb::kCreate && !stored.is_null())
      return {.outcome = ApiOutcome::kAlreadyExists, .message = "HTTP 409"};
    const Json& metadata = request.body["metadata"];
    if (metadata.contains("resourceVersion") &&
        metadata["resourceVersion"] != stored["metadata"]["resourceVersion"]) {
      return {.outcome = ApiOutcome::kConflict, .message = "HTTP 409"};
    }
    stored = request.body;
    stored["metadata"]["uid"] = "uid-of-policy";
    stored["metadata"]["resourceVersion"] = std::to_string(++version_);
    return {.outcome = ApiOutcome::kOk, .body = stored};
  }

  Timers& timers_;
  WatchHandler handler_;
  int version_ = 100;
};

struct JobPolicy : testing::Test {
  ManualClock clock;
  Timers timers{clock};
  Random random{1};
  PolicyServer api{timers};
  plan::NoAgents agents;
  Controller controller{api, agents, timers, random, options(), [] {}};

  static ControllerOptions options() {
    ControllerOptions options;
    options.limits.network_policies.emplace();
    return options;
  }
  void pass(Duration time) {
    for (const TimePoint end = clock.now() + time; clock.now() < end;) {
      clock.advance(milliseconds(50));
      timers.run_due();
    }
  }
  Json wanted_spec() const {
    const Result<TrainingJob> job = stored_training_job_from_json(api.jobs.document);
    return plan::make_network_policy(*job, {})["spec"];
  }
  Json failing() const { return api.jobs.condition(kNetworkPolicyFailing); }
};

TEST_F(JobPolicy, IsMadeOnceAndBeforeThePods) {
  api.next_write = {.outcome = ApiOutcome::kThrottled, .retry_after = seconds(3)};
  controller.start();
  pass(seconds(2));
  EXPECT_EQ(api.jobs.made, 0);
  api.next_write = {.outcome = ApiOutcome::kOk};
  pass(seconds(30));
  EXPECT_GT(api.jobs.made, 0);
  ASSERT_TRUE(api.stored.is_object());
  EXPECT_EQ(api.stored["spec"], wanted_spec());
  const int creates = api.creates;
  pass(seconds(120));
  EXPECT_EQ(api.creates, creates);
  EXPECT_EQ(api.replaces + api.deletes, 0);
  EXPECT_EQ(api.lists, 1) << "plans read the cache";
  EXPECT_TRUE(failing().is_null());
}

TEST_F(JobPolicy, IsRestoredWhenSomebodyDeletesOrChangesIt) {
  controller.start();
  pass(seconds(30));
  ASSERT_TRUE(api.stored.is_object());
  api.change(nullptr);
  pass(milliseconds(200));
  ASSERT_TRUE(api.stored.is_object());
  pass(seconds(5));
  Json opened = api.stored;
  opened["spec"]["ingress"] = Json::array({Json::object()});
  opened["metadata"].erase("ownerReferences");
  api.change(opened);
  pass(milliseconds(200));
  EXPECT_EQ(api.stored["spec"], wanted_spec());
  EXPECT_TRUE(api.stored["metadata"].contains("ownerReferences"));
  EXPECT_TRUE(failing().is_null());
}

TEST_F(JobPolicy, OneThatIsChangedAgainAndAgainIsRestoredMoreAndMoreRarely) {
  controller.start();
  pass(seconds(30));
  const int before = api.creates;
  for (int i = 0; i < 1200; ++i) {
    if (api.stored.is_object()) api.change(nullptr);
    pass(milliseconds(100));
  }
  EXPECT_GT(api.creates - before, 4);
  EXPECT_LT(api.creates - before, 12);
}

TEST_F(JobPolicy, WithoutTheLabelThatTheCacheNeedsIsFoundByItsName) {
  const Result<TrainingJob> job = stored_training_job_from_json(api.jobs.document);
  controller.start();
  pass(milliseconds(50));
  api.stored = {{"metadata", {{"name", plan::network_policy_name(job->metadata)}}}};
  pass(seconds(5));
  EXPECT_EQ(api.replaces, 1);
  EXPECT_EQ(api.stored["spec"], wanted_spec());
  EXPECT_GT(api.jobs.made, 0);
}

TEST_F(JobPolicy, AStaleCacheHoldsNoPodUp) {
  controller.start();
  pass(seconds(30));
  Json opened = api.stored;
  opened["spec"]["ingress"] = Json::array();
  api.next_write = {.outcome = ApiOutcome::kConflict, .message = "HTTP 409"};
  api.change(opened);
  const int made = api.jobs.made;
  pass(seconds(60));
  EXPECT_GT(api.replaces, 2);
  EXPECT_LT(api.replaces, 12);
  EXPECT_GT(api.jobs.made, made);
  EXPECT_TRUE(failing().is_null());
}

TEST_F(JobPolicy, IsDeletedWhenTheJobAsksForNone) {
  api.jobs.document["spec"]["security"]["networkPolicy"] = "none";
  const Result<TrainingJob> job = stored_training_job_from_json(api.jobs.document);
  api.stored = plan::make_network_policy(*job, {});
  api.stored["metadata"]["uid"] = "uid-of-policy";
  api.stored["metadata"]["resourceVersion"] = "90";
  controller.start();
  pass(seconds(5));
  EXPECT_TRUE(api.stored.is_null());
  EXPECT_EQ(api.deletes, 1);
  EXPECT_GT(api.jobs.made, 0);
}

TEST_F(JobPolicy, ThatTheServerRefusesIsToldAndTheJobGoesOn) {
  const std::pair<ApiOutcome, const char*> answers[] = {
      {ApiOutcome::kForbidden, "PolicyForbidden"},
      {ApiOutcome::kNotFound, "PolicyKindMissing"},
      {ApiOutcome::kInvalid, "PolicyInvalid"},
      {ApiOutcome::kUnavailable, "PolicyFailed"},
      {ApiOutcome::kTimeout, "PolicyFailed"}};
  for (const auto& [outcome, reason] : answers) {
    SCOPED_TRACE(reason);
    PolicyServer server(timers);
    server.next_write = {.outcome = outcome, .message = "HTTP 4xx: no"};
    Controller another(server, agents, timers, random, options(), [] {});
    another.start();
    pass(seconds(60));
    EXPECT_GT(server.jobs.made, 0);
    const Json failing = server.jobs.condition(kNetworkPolicyFailing);
    ASSERT_TRUE(failing.is_object());
    EXPECT_EQ(failing["status"], "True");
    EXPECT_EQ(failing["reason"], reason);
    EXPECT_LT(server.creates, 12);
    const auto told =
        std::count_if(server.jobs.events.begin(), server.jobs.events.end(),
                      [](const Json& event) { return event["reason"] == kNetworkPolicyFailing; });
    EXPECT_EQ(told, 1);
    server.next_write = {.outcome = ApiOutcome::kOk};
    pass(seconds(61));
    EXPECT_TRUE(server.stored.is_object());
    EXPECT_EQ(server.jobs.condition(kNetworkPolicyFailing)["status"], "False");
    another.stop([] {});
    pass(seconds(1));
  }
}

TEST_F(JobPolicy, ThatTheServerDoesNotListIsToldAndTheJobGoesOn) {
  const std::pair<ApiOutcome, const char*> answers[] = {
      {ApiOutcome::kForbidden, "PolicyForbidden"},
      {ApiOutcome::kNotFound, "PolicyKindMissing"},
      {ApiOutcome::kUnavailable, "PolicyFailed"}};
  for (const auto& [outcome, reason] : answers) {
    SCOPED_TRACE(reason);
    PolicyServer server(timers);
    server.next_list = {.outcome = outcome, .message = "HTTP 4xx: no"};
    Controller another(server, agents, timers, random, options(), [] {});
    another.start();
    pass(seconds(60));
    EXPECT_TRUE(another.synced());
    EXPECT_GT(server.jobs.made, 0);
    EXPECT_EQ(server.creates, 0);
    ASSERT_TRUE(server.jobs.condition(kNetworkPolicyFailing).is_object());
    EXPECT_EQ(server.jobs.condition(kNetworkPolicyFailing)["reason"], reason);
    server.next_list = {.outcome = ApiOutcome::kOk};
    pass(seconds(120));
    EXPECT_EQ(server.creates, 1);
    EXPECT_EQ(server.jobs.condition(kNetworkPolicyFailing)["status"], "False");
    another.stop([] {});
    pass(seconds(1));
  }
}

TEST_F(JobPolicy, AServerThatOnlyAsksForTimeIsNotTrouble) {
  PolicyServer server(timers);
  server.next_list = {.outcome = ApiOutcome::kThrottled, .message = "HTTP 429"};
  Controller another(server, agents, timers, random, options(), [] {});
  another.start();
  pass(seconds(60));
  EXPECT_FALSE(another.synced());
  server.next_list = {.outcome = ApiOutcome::kOk};
  pass(seconds(120));
  EXPECT_TRUE(another.synced());
  EXPECT_EQ(server.creates, 1);
  EXPECT_FALSE(server.jobs.condition(kNetworkPolicyFailing).is_object());
  another.stop([] {});
  pass(seconds(1));
}

TEST_F(JobPolicy, WithoutTheFlagTheKindIsNotAskedFor) {
  Controller another(api, agents, timers, random, {}, [] {});
  another.start();
  pass(seconds(30));
  EXPECT_GT(api.jobs.made, 0);
  EXPECT_EQ(api.lists + api.creates, 0);
}

}  // namespace
}  // namespace lockstep::loop
