#include <gtest/gtest.h>

#include "controller/kube/agent_http_client.h"
#include "tests/controller/kube/kube_calls.h"

namespace lockstep::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(AgentClient, PutsAssignmentsAndPollsStates) {
  Loop loop;
  std::vector<Request> seen;
  int status = 200;
  AgentState state;
  state.boot_id = "boot";
  state.sequence = 8;
  state.phase = "Running";
  ScriptedServer server([&](const Request& request, const Peer& peer) {
    if (request.contains("GET /v1/session ")) {
      peer.reply(404, "{}");  // an agent without sessions; agent_session_test.cc has others
      return;
    }
    seen.push_back(request);
    peer.reply(status, status == 200 ? dump_json(to_json(state)) : R"({"error":"no"})");
  });
  AgentHttpClient client({.port = server.port()}, loop.mailbox, loop.timers);
  const loop::AgentAddress agent{.ip = "127.0.0.1", .agent = "a", .tokens = {"job-token"}};
  Assignment told;
  told.job_name = "j";
  const auto assignment = std::make_shared<const Assignment>(told);
  told.node_index = 3;
  std::optional<Result<AgentState>> answer;
  const auto done = [&](Result<AgentState> result) { answer.emplace(std::move(result)); };
  const auto wait = [&] { loop.run_until([&] { return answer.has_value(); }); };
  client.put_assignment(agent, assignment, 3, done);
  wait();
  ASSERT_TRUE(answer->ok()) << answer->error().message;
  EXPECT_EQ(**answer, state);
  EXPECT_TRUE(seen[0].contains("PUT /v1/assignment?protocol=16 HTTP/1.1"));
  EXPECT_TRUE(seen[0].contains("Authorization: Bearer job-token\r\n"));
  EXPECT_EQ(Json::parse(seen[0].body), to_json(told));
  answer.reset();
  client.poll_state(agent, {.since = 7, .wait = seconds(10)}, done);
  wait();
  EXPECT_TRUE(seen[1].contains("GET /v1/state?since=7&timeoutSeconds=10&protocol=16 HTTP/1.1"));
  answer.reset();
  client.poll_state(
      agent, {.since = 7, .wait = seconds(10), .progress_after = std::chrono::milliseconds(1500)},
      done);
  wait();
  EXPECT_TRUE(seen[2].contains("&protocol=16&progressMilliseconds=1500 HTTP/1.1"));
  for (const auto& [code, expected] : std::map<int, Code>{{400, Code::kInvalid},
                                                          {401, Code::kNotFound},
                                                          {409, Code::kConflict},
                                                          {503, Code::kUnavailable}}) {
    status = code;
    answer.reset();
    client.put_assignment(agent, assignment, 3, done);
    wait();
    ASSERT_FALSE(answer->ok());
    EXPECT_EQ(answer->error().code, expected) << code;
  }
}

// Agents may share an address: pods in the node's network have the node's, and a removed pod's
// address is reused.
TEST(AgentClient, ForgettingAnAgentLeavesOthersAtItsAddressAlone) {
  Loop loop;
  AgentState state;
  state.boot_id = "boot";
  state.phase = "Idle";
  std::atomic<int> asked{0};
  std::atomic<bool> may_answer{false};
  ScriptedServer server([&](const Request& request, const Peer& peer) {
    if (request.contains("GET /v1/session ")) {
      peer.reply(404, "{}");
      return;
    }
    ++asked;
    may_answer.wait(false);
    peer.reply(200, dump_json(to_json(state)));
  });
  AgentHttpClient client({.port = server.port()}, loop.mailbox, loop.timers);
  const loop::AgentAddress gone{.ip = "127.0.0.1", .agent = "a", .tokens = {"a"}};
  const loop::AgentAddress other{.ip = "127.0.0.1", .agent = "b", .tokens = {"b"}};
  int answers = 0;
  const auto done = [&](const Result<AgentState>& answer) { answers += answer.ok() ? 1 : 0; };
  client.poll_state(gone, {.wait = seconds(10)}, done);
  client.poll_state(other, {.wait = seconds(10)}, done);
  client.put_assignment(other, std::make_shared<const Assignment>(), 0, done);
  client.forget(gone);
  client.forget(gone);
  may_answer = true;
  may_answer.notify_all();
  loop.run_until([&] { return answers == 3; });
  client.forget(other);
  client.poll_state(other, {.wait = seconds(10)}, done);
  loop.run_until([&] { return answers == 4; });
  EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace lockstep::kube
