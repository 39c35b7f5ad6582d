#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "controller/loop/api_client.h"
#include "controller/loop/controller.h"
#include "controller/loop/timers.h"
#include "tests/controller/support/no_agents.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {

// An API server with one job and answers chosen by the test. It stores no pods.
class OneJob final : public loop::ApiClient {
 public:
  explicit OneJob(loop::Timers& timers) : timers_(timers) {
    TrainingJob job = Scene(1).seen.job;
    job.status.observedGeneration = 0;
    document = to_json(job);
    document["metadata"]["namespace"] = "default";
    document["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z";
  }

  void send(loop::ApiRequest request, Done done) override {
    timers_.after(Duration{0}, [this, request = std::move(request), done = std::move(done)] {
      done(answer(request));
    });
  }
  std::unique_ptr<loop::WatchHandle> watch(loop::WatchRequest, loop::WatchHandler) override {
    return std::make_unique<loop::WatchHandle>();
  }

  // Returns the job's condition of that type; null if it has none.
  Json condition(const char* type) const {
    const Json* status = find_member(document, "status");
    if (status == nullptr) return nullptr;
    for (const Json& one : status->value("conditions", Json::array())) {
      if (one["type"] == type) return one;
    }
    return nullptr;
  }

  Json document;
  loop::ApiReply next_check{.outcome = loop::ApiOutcome::kOk, .body = Json::object()};
  loop::ApiReply next_pod{.outcome = loop::ApiOutcome::kUnavailable};
  loop::ApiReply next_status{.outcome = loop::ApiOutcome::kOk};  // kOk: the status is stored
  std::vector<Json> events;
  int checked = 0;
  int made = 0;

 private:
  loop::ApiReply answer(loop::ApiRequest request) {
    if (request.make_text) request.body = Json::parse(request.make_text());
    const bool is_pod = request.type.plural == loop::kPods.plural;
    if (request.verb == loop::ApiVerb::kList) {
      const Json items = is_pod ? Json::array() : Json::array({document});
      return {.outcome = loop::ApiOutcome::kOk,
              .body = {{"metadata", {{"resourceVersion", "9"}}}, {"items", items}}};
    }
    if (request.type.plural == loop::kEvents.plural) events.push_back(request.body);
    if (request.verb == loop::ApiVerb::kReplaceStatus && !next_status.ok()) return next_status;
    if (request.verb == loop::ApiVerb::kReplaceStatus) {
      document["status"] = request.body["status"];
      const std::string version = document["metadata"]["resourceVersion"];
      document["metadata"]["resourceVersion"] = std::to_string(std::stoi(version) + 1);
      return {.outcome = loop::ApiOutcome::kOk, .body = document};
    }
    if (is_pod && request.query.contains("dryRun")) {
      ++checked;
      EXPECT_EQ(request.query.at("dryRun"), "All");
      return next_check;
    }
    if (is_pod) ++made;
    if (is_pod) return next_pod;
    return {.outcome = loop::ApiOutcome::kOk, .body = request.body};
  }

  loop::Timers& timers_;
};

// A test with a controller and OneJob as its API server.
struct OneJobTest : ::testing::Test {
  ManualClock clock;
  loop::Timers timers{clock};
  Random random{1};
  OneJob api{timers};
  NoAgents agents;
  loop::Controller controller{api, agents, timers, random, {}, [] {}};

  void pass(Duration time) {
    for (const TimePoint end = clock.now() + time; clock.now() < end;) {
      clock.advance(std::chrono::milliseconds(50));
      timers.run_due();
    }
  }
};

}  // namespace lockstep::plan
