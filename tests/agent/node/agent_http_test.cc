// lockstep-agent's HTTP responses to controllers of every version, unauthenticated clients and
// Prometheus.
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "tests/agent/node/agent_fixture.h"
#include "tests/agent/node/metrics_text.h"

namespace lockstep::node {
namespace {

TEST_F(AgentTest, WakesAWaitingControllerAtOnceWhenAWorkerDies) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("wait"));
  const AgentState running = agent.wait_for_phase("Running");
  test::RawConnection connection(agent.port());
  connection.send("GET /v1/state?timeoutSeconds=30&since=" + std::to_string(running.sequence) +
                  " HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n");
  kill(static_cast<pid_t>(running.workers.at(0).pid), SIGKILL);
  const auto state = agent_state_from_json(*parse_json(connection.read_reply().body));
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->phase, "Failed");
  EXPECT_EQ(state->boot_id, running.boot_id);
}

std::string poll_after(const AgentState& known, const std::string& progress_milliseconds) {
  return "GET /v1/state?timeoutSeconds=30&progressMilliseconds=" + progress_milliseconds +
         "&since=" + std::to_string(known.sequence) +
         " HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n";
}

TEST_F(AgentTest, TellsMereProgressWhenAControllerWantsItAndAllElseAtOnce) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("steps:100000"));
  const auto trains = [](const AgentState& state) { return state.progress.has_value(); };
  const AgentState training = agent.wait_for(trains);
  test::RawConnection patient(agent.port());
  test::RawConnection other(agent.port());
  patient.send(poll_after(training, "30000"));
  other.send(poll_after(training, "1"));
  const auto progress = agent_state_from_json(*parse_json(other.read_reply().body));
  ASSERT_TRUE(progress.ok());
  EXPECT_EQ(progress->phase, "Running");
  EXPECT_GT(progress->sequence, training.sequence);
  kill(static_cast<pid_t>(training.workers.at(0).pid), SIGKILL);
  const auto failed = agent_state_from_json(*parse_json(patient.read_reply().body));
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(failed->phase, "Failed") << "it was told of progress";
}

TEST_F(AgentTest, AnswersAtOnceWhoKnowsAnotherSequence) {
  AgentProcess agent({.job_uid = uid_});
  for (const char* since : {"0", "999"}) {  // 999: from an earlier agent
    const test::HttpReply reply = test::http_call(
        agent.port(),
        {.target = std::string("/v1/state?timeoutSeconds=30&since=") + since, .token = "secret"});
    EXPECT_EQ(reply.status, 200);
  }
  const test::HttpReply unchanged = test::http_call(
      agent.port(), {.target = "/v1/state?since=1&timeoutSeconds=0", .token = "secret"});
  EXPECT_EQ(unchanged.status, 200);
}

TEST_F(AgentTest, AnswersInTheVersionOfWhoAsksAndInItsOwnNewestToWhoeverIsNewer) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("wait"));
  agent.wait_for_phase("Running");
  const std::map<std::string, int64_t> answers = {{"", 1},  // like every controller of version 1
                                                  {"?protocol=1", 1},
                                                  {"?protocol=2", 2},
                                                  {"?protocol=3", 3},
                                                  {"?protocol=4", 4},
                                                  {"?protocol=5", 5},
                                                  {"?protocol=6", 6},
                                                  {"?protocol=8", 8},
                                                  {"?protocol=12", 12},
                                                  {"?protocol=13", 13},
                                                  {"?protocol=16", kProtocolNewest}};
  for (const auto& [query, expected] : answers) {
    SCOPED_TRACE(query);
    const Json state = *parse_json(agent.get("/v1/state" + query).body);
    EXPECT_EQ(state.at("protocol"), expected);
    EXPECT_TRUE(agent_state_from_json(state).ok());
  }
  Assignment older = order("wait");
  older.protocol = 1;
  EXPECT_EQ(agent.put(older).status, 200);
  Assignment newer = order("wait");
  newer.protocol = kProtocolNewest + 1;
  const test::HttpReply refused = agent.put(newer);
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(contains(refused.body, "assignment.protocol")) << refused.body;
  EXPECT_EQ(agent.get("/v1/state?protocol=x").status, 400);
}

struct RefusedCall {
  test::HttpCall call;
  int status;
};

TEST_F(AgentTest, RefusesStrangersAndNonsenseWithAnErrorInJson) {
  AgentProcess agent({.job_uid = uid_});
  const std::string good = dump_json(to_json(order("wait")));
  const RefusedCall cases[] = {
      {{.target = "/v1/state"}, 401},
      {{.target = "/v1/state", .token = "secre"}, 401},
      {{.target = "/v1/state", .token = "secrets"}, 401},
      {{.method = "PUT", .target = "/v1/assignment", .token = "guess", .body = good}, 401},
      {{.target = "/v1/assignment", .token = "secret"}, 405},
      {{.method = "DELETE", .target = "/metrics"}, 405},
      {{.target = "/etc/passwd", .token = "secret"}, 404},
      {{.target = "/v1/state?since=-1", .token = "secret"}, 400},
      {{.target = "/v1/state?since=x", .token = "secret"}, 400},
      {{.target = "/v1/state?timeoutSeconds=", .token = "secret"}, 400},
      {{.target = "/v1/state?progressMilliseconds=-1", .token = "secret"}, 400},
      {{.method = "PUT", .target = "/v1/assignment", .token = "secret"}, 400},
      {{.method = "PUT", .target = "/v1/assignment", .token = "secret", .body = "{"}, 400},
      {{.method = "PUT", .target = "/v1/assignment", .token = "secret", .body = "[]"}, 400},
      {{.method = "PUT",
        .target = "/v1/assignment",
        .token = "secret",
        .body = std::string(200'000, '[')},
       400},
      {{.method = "PUT",
        .target = "/v1/assignment",
        .token = "secret",
        .body = std::string(kAssignmentBytesMax + 1, ' ')},
       413},
  };
  for (const RefusedCall& refused : cases) {
    const test::HttpReply reply = test::http_call(agent.port(), refused.call);
    EXPECT_EQ(reply.status, refused.status) << refused.call.method << " " << refused.call.target;
    const auto document = parse_json(reply.body);
    ASSERT_TRUE(document.ok()) << reply.body;
    EXPECT_NE(string_or(*document, "error", ""), "");
  }
  EXPECT_EQ(agent.wait_for([](const AgentState&) { return true; }).phase, "Idle");
}

TEST_F(AgentTest, ServesTheControllerWhileStrangersHoldConnectionsOpen) {
  AgentProcess agent({.job_uid = uid_});
  std::vector<std::unique_ptr<test::RawConnection>> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(std::make_unique<test::RawConnection>(agent.port()));
    strangers.back()->send("PUT /v1/assignment HTTP/1.1\r\nContent-Le");
  }
  EXPECT_EQ(agent.put(order("exit:0")).status, 200);
  agent.wait_for_phase("Completed");
}

TEST_F(AgentTest, ServesMetricsThatComeFromTheWorkers) {
  AgentProcess agent({.job_uid = uid_});
  EXPECT_EQ(test::http_call(agent.port(), {.target = "/healthz"}).body, "ok");
  agent.put(order("wait", 1, 2));
  agent.wait_for_phase("Running");
  agent.put(order("step:10", 2, 2));
  agent.wait_for([](const AgentState& state) {
    return state.progress && state.progress->step == 10 && state.workers.at(1).step == 10;
  });
  const test::HttpReply reply = test::http_call(agent.port(), {.target = "/metrics"});
  EXPECT_TRUE(contains(reply.head, "text/plain; version=0.0.4"));
  const MetricsText text(reply.body);
  const std::string labels = "{job=\"job\",namespace=\"space\",node_index=\"0\"";
  const std::pair<const char*, double> values[] = {
      {"lockstep_train_tokens_total", 5120},
      {"lockstep_train_samples_total", 160},
      {"lockstep_train_step", 10},
      {"lockstep_train_loss", 3.25},
      {"lockstep_train_validation_loss", 3.5},
      {"lockstep_train_tokens_per_second", 2000},
      {"lockstep_train_learning_rate", 0.001},
      {"lockstep_train_gradient_norm", 0.5},
      {"lockstep_agent_worker_restarts_total", 2},
      {"lockstep_agent_round", 2},
      {"lockstep_agent_workers_running", 2},
  };
  for (const auto& [name, value] : values) {
    EXPECT_DOUBLE_EQ(text.value(name + labels + "}"), value) << name;
  }
  EXPECT_DOUBLE_EQ(
      text.value("lockstep_train_step_seconds" + labels + ",rank=\"1\",part=\"update\"}"), 0.005);
}

TEST_F(AgentTest, ReportsProgressAndTheCheckpointOfItsWorkers) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("step:10"));
  const AgentState state =
      agent.wait_for([](const AgentState& s) { return s.progress && s.progress->step == 10; });
  EXPECT_EQ(state.progress->tokens, 5120);
  EXPECT_DOUBLE_EQ(*state.progress->loss, 3.25);
  EXPECT_EQ(state.workers.at(0).phase, WorkerPhase::kTraining);
  EXPECT_EQ(state.last_checkpoint->path, "/ckpt/step-00000005");
}

TEST_F(AgentTest, TellsOfFailedSavesAndCountsThemOverTheRounds) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("unsaved:500@0+exit:5@0", 1, 2));
  const AgentState ended = agent.wait_for_phase("Failed");
  ASSERT_TRUE(ended.storage) << "written right before the exit";
  EXPECT_EQ(ended.storage->failed_step, 500);
  EXPECT_EQ(ended.storage->failure, "no space left on device");
  agent.put(order("unsaved:600@0", 2, 2));
  agent.wait_for([](const AgentState& state) {
    return state.round == 2 && state.storage && state.storage->failed_step == 600;
  });
  const MetricsText text(test::http_call(agent.port(), {.target = "/metrics"}).body);
  const std::string labels = "{job=\"job\",namespace=\"space\",node_index=\"0\"}";
  EXPECT_EQ(text.value("lockstep_checkpoint_save_failures_total" + labels), 2);
  EXPECT_EQ(text.value("lockstep_checkpoint_saves_total" + labels), 4);
}

TEST_F(AgentTest, NamesThePortThatIsTakenAndGivesUp) {
  AgentProcess first({.job_uid = uid_});
  const std::string address = "127.0.0.1:" + std::to_string(first.port());
  AgentProcess second({.job_uid = new_uid(), .listen = address});
  EXPECT_EQ(second.port(), 0);
  EXPECT_EQ(second.wait_for_exit(), 1);
  EXPECT_TRUE(contains(second.stderr_text(), address + " is already in use"))
      << second.stderr_text();
}

}  // namespace
}  // namespace lockstep::node
