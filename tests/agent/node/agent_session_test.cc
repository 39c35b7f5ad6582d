// lockstep-agent against controllers that know sessions, strangers, and Secrets of somebody else.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/api/agent_messages.h"
#include "common/base/json.h"
#include "common/base/sha256.h"
#include "common/http/body_cipher.h"
#include "common/http/signed_session.h"
#include "tests/agent/node/agent_fixture.h"
#include "tests/support/raw_http.h"

namespace lockstep::node {
namespace {

constexpr char kName[] = "job-worker-0-1";

std::string field(const std::string& head, const std::string& name) {
  const size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

struct Call {
  std::string method = "GET";
  std::string target = "/v1/state";
  std::string body{};
};

std::string request_text(const Call& call, const std::string& authorization) {
  return call.method + " " + call.target + " HTTP/1.1\r\nAuthorization: " + authorization +
         "\r\nContent-Length: " + std::to_string(call.body.size()) + "\r\n\r\n" + call.body;
}

// A controller's connection to an agent.
class Controller {
 public:
  explicit Controller(const AgentProcess& agent, const std::string& token = "secret",
                      const std::string& name = kName, bool encrypts = false)
      : connection_(agent.port()),
        session_({.server_name = name,
                  .secrets = {token},
                  .nonce = sha256("a nonce"),
                  .encrypts = encrypts}) {}

  bool greet() {
    const test::HttpReply reply =
        raw(request_text({.target = http::kSessionPath}, session_.hello()));
    if (!session_.accept(field(reply.head, http::kProofField))) return false;
    if (!session_.encrypts()) return true;
    const http::SessionKeys keys = session_.body_keys();
    cipher_.emplace(http::BodyCipher::make(keys.request, keys.reply).value());
    return true;
  }
  std::string sign(Call call) {
    if (cipher_) call.body = cipher_->encrypt(session_.number() + 1, call.body).value();
    return sign_only(call);
  }
  std::string sign_only(const Call& call) {
    return request_text(call, session_.sign(call.method, call.target, sha256(call.body)));
  }
  test::HttpReply raw(const std::string& request) {
    connection_.send(request);
    return connection_.read_reply();
  }
  // Returns the reply, with status 0 if it is not the agent's.
  test::HttpReply call(const Call& call) { return checked(raw(sign(call))); }
  test::HttpReply checked(test::HttpReply reply) {
    const std::string proof = field(reply.head, http::kProofField);
    const bool is_good =
        session_.check(proof, static_cast<unsigned>(reply.status), sha256(reply.body));
    if (!is_good) return {};
    if (cipher_) reply.body = cipher_->decrypt(session_.number(), reply.body).value();
    return reply;
  }
  test::RawConnection& connection() { return connection_; }

 private:
  test::RawConnection connection_;
  http::SessionClient session_;
  std::optional<http::BodyCipher> cipher_;
};

Call put_of(const Assignment& assignment) {
  return {.method = "PUT", .target = "/v1/assignment", .body = dump_json(to_json(assignment))};
}

TEST_F(AgentTest, CarriesOutWhatAControllerOrdersInASession) {
  AgentProcess agent({.job_uid = uid_, .more_env = {"LOCKSTEP_REQUESTS=signed"}});
  Controller controller(agent);
  ASSERT_TRUE(controller.greet());
  EXPECT_EQ(controller.call(put_of(order("wait"))).status, 200);
  test::HttpReply reply;
  int64_t sequence = 0;
  do {
    reply = controller.call(
        {.target = "/v1/state?timeoutSeconds=30&protocol=6&since=" + std::to_string(sequence)});
    ASSERT_EQ(reply.status, 200);
    const auto state = agent_state_from_json(*parse_json(reply.body));
    ASSERT_TRUE(state.ok());
    sequence = state->sequence;
    if (state->phase == "Running") break;
  } while (true);
  // Refusals are signed too.
  EXPECT_EQ(controller.call({.target = "/v1/state?since=x"}).status, 400);
  EXPECT_EQ(controller.call({.target = "/etc/passwd"}).status, 404);
  EXPECT_EQ(controller.call({.method = "DELETE"}).status, 405);
  EXPECT_EQ(controller.call(put_of(order("wait", 0))).status, 409);
  EXPECT_EQ(controller.call({.target = "/healthz"}).body, "ok");
}

TEST_F(AgentTest, AnswersALongPollOfASessionWhenAWorkerDies) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("wait"));
  const AgentState running = agent.wait_for_phase("Running");
  Controller controller(agent);
  ASSERT_TRUE(controller.greet());
  controller.connection().send(controller.sign(
      {.target = "/v1/state?timeoutSeconds=30&since=" + std::to_string(running.sequence)}));
  kill(static_cast<pid_t>(running.workers.at(0).pid), SIGKILL);
  const test::HttpReply reply = controller.checked(controller.connection().read_reply());
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(agent_state_from_json(*parse_json(reply.body))->phase, "Failed");
}

TEST_F(AgentTest, RefusesTheTokenIfItsControllerKnowsSessions) {
  AgentProcess agent({.job_uid = uid_, .more_env = {"LOCKSTEP_REQUESTS=signed"}});
  EXPECT_EQ(agent.put(order("exit:0")).status, 401);
  EXPECT_EQ(agent.get("/v1/state").status, 401);
  EXPECT_EQ(test::http_call(agent.port(), {.target = "/healthz"}).body, "ok");
  EXPECT_EQ(test::http_call(agent.port(), {.target = "/metrics"}).status, 200);
  Controller controller(agent);
  ASSERT_TRUE(controller.greet());
  const test::HttpReply state = controller.call({});
  EXPECT_EQ(agent_state_from_json(*parse_json(state.body))->phase, "Idle");
}

TEST_F(AgentTest, EncryptsIfItsControllerWantsIt) {
  AgentProcess agent({.job_uid = uid_, .more_env = {"LOCKSTEP_REQUESTS=encrypted"}});
  EXPECT_EQ(agent.put(order("exit:0")).status, 401);
  Controller plain(agent);
  EXPECT_FALSE(plain.greet()) << "without encryption";
  Controller controller(agent, "secret", kName, /*encrypts=*/true);
  ASSERT_TRUE(controller.greet());
  EXPECT_EQ(controller.call(put_of(order("wait"))).status, 200);
  const test::HttpReply state = controller.call({.target = "/v1/state"});
  ASSERT_EQ(state.status, 200);
  EXPECT_TRUE(agent_state_from_json(*parse_json(state.body)).ok()) << state.body;
  EXPECT_EQ(controller.call({.target = "/v1/state?since=x"}).status, 400);
  const test::HttpReply sent = controller.raw(controller.sign({.target = "/v1/state"}));
  EXPECT_EQ(sent.status, 200);
  EXPECT_EQ(sent.body.find("bootId"), std::string::npos) << "readable on its way";
}

TEST_F(AgentTest, AnEncryptedRequestThatIsNotEndsTheConnection) {
  AgentProcess agent({.job_uid = uid_, .more_env = {"LOCKSTEP_REQUESTS=signed"}});
  Controller controller(agent, "secret", kName, /*encrypts=*/true);
  ASSERT_TRUE(controller.greet());
  // Signed, but not encrypted.
  EXPECT_EQ(controller.raw(controller.sign_only(put_of(order("exit:0")))).status, 401);
  controller.connection().wait_for_close();
}

TEST_F(AgentTest, DoesNothingForWhoeverRecordsOrChangesRequests) {
  AgentProcess agent({.job_uid = uid_, .more_env = {"LOCKSTEP_REQUESTS=signed"}});
  const Call put = put_of(order("exit:0"));
  std::string recorded;
  {
    Controller controller(agent);
    ASSERT_TRUE(controller.greet());
    recorded = controller.sign(put);  // never arrives
  }
  const std::string body_of_another = [&] {
    std::string text = recorded;
    return text.replace(text.find("exit:0"), 6, "exit:1");
  }();
  const std::string target_of_another = [&] {
    std::string text = recorded;
    return text.replace(text.find("/v1/assignment"), 14, "/v1/assignment?protocol=6");
  }();
  for (const std::string& text : {recorded, body_of_another, target_of_another}) {
    Controller stranger(agent, "guess");
    EXPECT_FALSE(stranger.greet());
    EXPECT_EQ(stranger.raw(text).status, 401);
    EXPECT_EQ(test::RawConnection(agent.port()).send(text), true);
  }
  // On the controller's own connection: another body, after which the connection ends.
  Controller changed(agent);
  ASSERT_TRUE(changed.greet());
  std::string text = changed.sign(put);
  text.replace(text.find("exit:0"), 6, "exit:1");
  EXPECT_EQ(changed.raw(text).status, 401);
  changed.connection().wait_for_close();
  // The same request again.
  Controller again(agent);
  ASSERT_TRUE(again.greet());
  const std::string poll = again.sign({});
  EXPECT_EQ(again.raw(poll).status, 200);
  EXPECT_EQ(again.raw(poll).status, 401);
  Controller controller(agent);
  ASSERT_TRUE(controller.greet());
  EXPECT_EQ(agent_state_from_json(*parse_json(controller.call({}).body))->phase, "Idle");
}

// The head alone shows that it is a stranger's.
TEST_F(AgentTest, ReadsNoBodyOfAStranger) {
  AgentProcess agent({.job_uid = uid_});
  const std::string zeros(64, '0');
  test::RawConnection stranger(agent.port());
  stranger.send(
      "PUT /v1/assignment HTTP/1.1\r\nContent-Length: 4000000\r\nAuthorization: Lockstep 1 " +
      zeros + " " + zeros + "\r\n\r\n");
  EXPECT_EQ(stranger.read_reply().status, 401);
}

TEST_F(AgentTest, IsNotTakenForAnotherAgentOfItsJob) {
  AgentProcess agent({.job_uid = uid_});
  Controller controller(agent, "secret", "job-worker-1-1");
  EXPECT_FALSE(controller.greet());
}

// The pod stays, so that the controller can tell why instead of making it anew.
TEST_F(AgentTest, RefusesEverybodyIfTheSecretHasNoToken) {
  for (const char* file : {"/dev/null", "/nonexistent"}) {
    SCOPED_TRACE(file);
    AgentProcess agent({.job_uid = uid_, .token_file = file});
    ASSERT_NE(agent.port(), 0) << agent.stderr_text();
    Controller controller(agent, "");
    EXPECT_FALSE(controller.greet());
    EXPECT_EQ(agent.get("/v1/state").status, 401);
    test::RawConnection bare(agent.port());
    bare.send("GET /v1/state HTTP/1.1\r\nAuthorization: Bearer \r\n\r\n");
    EXPECT_EQ(bare.read_reply().status, 401);
    EXPECT_EQ(test::http_call(agent.port(), {.target = "/healthz"}).body, "ok");
    EXPECT_TRUE(contains(agent.stderr_text(), "refusing all requests"));
  }
}

}  // namespace
}  // namespace lockstep::node
