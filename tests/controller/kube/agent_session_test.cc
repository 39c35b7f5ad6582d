// The client of agents against agents that know sessions, older ones, strangers and people in the
// middle.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/http/body_cipher.h"
#include "common/http/signed_session.h"
#include "controller/kube/agent_http_client.h"
#include "tests/controller/kube/client_loop.h"
#include "tests/controller/kube/scripted_server.h"

namespace lockstep::kube {
namespace {

using Peer = ScriptedServer::Peer;
using Request = ScriptedServer::Request;
using std::chrono::seconds;

constexpr char kAgent[] = "job-worker-0-1";

std::string field(const std::string& head, const std::string& name) {
  const size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

std::string target(const std::string& head) {
  const size_t begin = head.find(' ') + 1;
  return head.substr(begin, head.find(' ', begin) - begin);
}

struct Answer {
  int status = 200;
  std::string body;
  std::string proof;  // empty: no such field
};

// An agent that knows sessions, with one connection at a time. `change` plays somebody in
// the middle, who changes the replies after the greeting.
class PlayedAgent {
 public:
  explicit PlayedAgent(std::string token) : token_(std::move(token)) {}

  void operator()(const Request& request, const Peer& peer) {
    const std::lock_guard lock(mutex);
    heads.push_back(request.head);
    bodies.push_back(request.body);
    const std::string authorization = field(request.head, "Authorization");
    if (target(request.head) == http::kSessionPath) return greet(authorization, peer);
    const std::string method = request.head.substr(0, request.head.find(' '));
    const bool is_good = session_ &&
                         session_->accept(authorization, method, target(request.head)) &&
                         session_->accept_body(request.body);
    if (!is_good) {
      write(peer, {.status = 401, .body = "{}"});
      return;
    }
    if (cipher_) read_bodies.push_back(cipher_->decrypt(session_->number(), request.body).value());
    Answer answer{.status = status, .body = body};
    if (cipher_) answer.body = cipher_->encrypt(session_->number(), body).value();
    answer.proof = session_->sign(static_cast<unsigned>(status), answer.body);
    if (change) change(answer);
    write(peer, answer);
  }

  static void write(const Peer& peer, const Answer& answer) {
    const std::string proof =
        answer.proof.empty() ? "" : std::string(http::kProofField) + ": " + answer.proof + "\r\n";
    peer.reply(answer.status, answer.body, proof);
  }

  std::mutex mutex;
  std::vector<std::string> heads;
  std::vector<std::string> bodies;       // as they were sent
  std::vector<std::string> read_bodies;  // of encrypted sessions, decrypted
  int status = 200;
  std::string body;
  std::function<void(Answer&)> change;

 private:
  void greet(const std::string& authorization, const Peer& peer) {
    session_.emplace(
        http::SessionServer::Options{.server_name = kAgent, .secret = token_, .nonce = nonce_});
    ++nonce_[0];
    write(peer, {.body = "{}", .proof = *session_->greet(authorization)});
    cipher_.reset();
    if (!session_->encrypts()) return;
    const http::SessionKeys keys = session_->body_keys();
    cipher_.emplace(http::BodyCipher::make(keys.reply, keys.request).value());
  }

  std::string token_;
  Digest nonce_{};
  std::optional<http::SessionServer> session_;
  std::optional<http::BodyCipher> cipher_;
};

std::string state_text(int64_t sequence = 8) {
  AgentState state;
  state.boot_id = "boot";
  state.sequence = sequence;
  state.phase = "Running";
  return dump_json(to_json(state));
}

class AgentSession : public testing::Test {
 protected:
  void serve(ScriptedServer::Handler handler) {
    server_.emplace(std::move(handler));
    client_.emplace(AgentHttpOptions{.port = server_->port()}, loop_.mailbox, loop_.timers);
  }
  // Returns an agent that lives as long as the server: its last reply may arrive before it is done.
  PlayedAgent& play(std::string token) { return agents_.emplace_back(std::move(token)); }
  void serve(PlayedAgent& agent) {
    serve([&agent](const Request& request, const Peer& peer) { agent(request, peer); });
  }
  loop::AgentAddress address(bool is_signed = true) const {
    return {.ip = "127.0.0.1", .agent = kAgent, .tokens = tokens_, .is_signed = is_signed};
  }
  loop::AgentAddress encrypted() const {
    loop::AgentAddress result = address();
    result.is_encrypted = true;
    return result;
  }
  Result<AgentState> poll(const loop::AgentAddress& address, Duration wait = seconds(10)) {
    std::optional<Result<AgentState>> answer;
    client_->poll_state(address, {.wait = wait},
                        [&](auto result) { answer.emplace(std::move(result)); });
    loop_.run_until([&] { return answer.has_value(); });
    return *answer;
  }
  Result<AgentState> put(const loop::AgentAddress& address) {
    std::optional<Result<AgentState>> answer;
    client_->put_assignment(address, std::make_shared<const Assignment>(), 0,
                            [&](auto result) { answer.emplace(std::move(result)); });
    loop_.run_until([&] { return answer.has_value(); });
    return *answer;
  }

  ClientLoop loop_;
  std::vector<std::string> tokens_ = {"new-token", "old-token"};
  std::deque<PlayedAgent> agents_;
  std::optional<ScriptedServer> server_;
  std::optional<AgentHttpClient> client_;
};

TEST_F(AgentSession, GreetsOnceAndNeverSendsTheToken) {
  PlayedAgent& agent = play("new-token");
  agent.body = state_text();
  serve(agent);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(poll(address()).ok());
    ASSERT_TRUE(put(address(/*is_signed=*/false)).ok());
  }
  ASSERT_EQ(agent.heads.size(), 7u);
  for (const std::string& head : agent.heads) {
    EXPECT_EQ(head.find("token"), std::string::npos) << head;
    EXPECT_EQ(head.find("Bearer"), std::string::npos) << head;
  }
}

TEST_F(AgentSession, FindsTheAgentsTokenAmongThoseOfAllKeys) {
  PlayedAgent& agent = play("old-token");
  agent.body = state_text();
  serve(agent);
  EXPECT_TRUE(poll(address()).ok());
  EXPECT_TRUE(put(address()).ok());
}

TEST_F(AgentSession, BelievesNoReplyThatWasChangedOnItsWay) {
  PlayedAgent& agent = play("new-token");
  agent.body = state_text();
  serve(agent);
  std::optional<Answer> recorded;
  agent.change = [&](Answer& answer) { recorded = answer; };
  ASSERT_TRUE(poll(address()).ok());
  const std::vector<std::pair<const char*, std::function<void(Answer&)>>> changes = {
      {"status", [](Answer& answer) { answer.status = 409; }},
      {"body", [](Answer& answer) { answer.body = state_text(9); }},
      {"no proof", [](Answer& answer) { answer.proof.clear(); }},
      {"counter", [](Answer& answer) { answer.proof[0] = '7'; }},
      {"mac", [](Answer& answer) { answer.proof.back() ^= 1; }},
      {"an earlier reply", [&](Answer& answer) { answer = *recorded; }},
      {"a refusal", [](Answer& answer) { answer = {.status = 401, .body = "{}"}; }},
  };
  for (const auto& [what, change] : changes) {
    SCOPED_TRACE(what);
    agent.change = nullptr;
    ASSERT_TRUE(poll(address()).ok());
    agent.change = change;
    const Result<AgentState> answer = poll(address());
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, Code::kUnavailable) << answer.error().message;
  }
}

TEST_F(AgentSession, TellsAStrangerNothingAndBelievesNothing) {
  const std::string zeros(64, '0');
  const std::vector<Answer> answers = {{.status = 200, .body = state_text()},
                                       {.status = 200, .body = "{}", .proof = zeros + " " + zeros},
                                       {.status = 401, .body = "{}"},
                                       {.status = 404, .body = "{}"}};
  for (const Answer& answer : answers) {
    SCOPED_TRACE(answer.status);
    std::mutex mutex;
    std::vector<std::string> heads;
    serve([&](const Request& request, const Peer& peer) {
      const std::lock_guard lock(mutex);
      heads.push_back(request.head);
      PlayedAgent::write(peer, answer);
    });
    for (const Result<AgentState>& heard : {poll(address()), put(address())}) {
      ASSERT_FALSE(heard.ok());
      EXPECT_EQ(heard.error().code, Code::kNotFound) << heard.error().message;
    }
    const std::lock_guard lock(mutex);
    ASSERT_EQ(heads.size(), 2u);
    for (const std::string& head : heads) {
      EXPECT_TRUE(head.starts_with("GET /v1/session HTTP/1.1\r\n")) << head;
      EXPECT_EQ(head.find("token"), std::string::npos) << head;
    }
  }
}

// An agent of a version without sessions.
ScriptedServer::Handler old_agent(const std::string& token, std::vector<std::string>& heads) {
  return [token, &heads](const Request& request, const Peer& peer) {
    heads.push_back(request.head);
    if (target(request.head) == http::kSessionPath) {
      peer.reply(404, R"({"error":"no such path"})");
    } else if (field(request.head, "Authorization") == "Bearer " + token) {
      peer.reply(200, state_text());
    } else {
      peer.reply(401, "{}");
    }
  };
}

TEST_F(AgentSession, ServesAnAgentWithoutSessionsUnlessItsPodSaysThatItHasThem) {
  std::vector<std::string> heads;
  serve(old_agent("new-token", heads));
  EXPECT_TRUE(poll(address(/*is_signed=*/false)).ok());
  EXPECT_TRUE(put(address(/*is_signed=*/false)).ok());
  heads.clear();
  client_.emplace(AgentHttpOptions{.port = server_->port()}, loop_.mailbox, loop_.timers);
  const Result<AgentState> refused = poll(address(/*is_signed=*/true));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kNotFound);
  ASSERT_EQ(heads.size(), 1u);
}

TEST_F(AgentSession, TriesTheTokensOfOlderKeysWithAnAgentWithoutSessions) {
  std::vector<std::string> heads;
  serve(old_agent("old-token", heads));
  EXPECT_TRUE(put(address(/*is_signed=*/false)).ok());
  ASSERT_EQ(heads.size(), 3u) << "greeting, new token, old token";
  EXPECT_TRUE(poll(address(/*is_signed=*/false)).ok());
  EXPECT_EQ(heads.size(), 4u) << "it remembers the token";
  std::vector<std::string> others;
  serve(old_agent("a-third-token", others));
  const Result<AgentState> refused = poll(address(/*is_signed=*/false));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kNotFound);
  EXPECT_EQ(others.size(), 3u) << "each token once";
}

// Both requests are refused with the first token before either tries the next one.
TEST_F(AgentSession, TriesTheTokensOfOlderKeysWithSeveralRequestsAtOnce) {
  std::latch both_refused(2);
  std::atomic<int> refusals = 0;
  serve([&](const Request& request, const Peer& peer) {
    const std::string authorization = field(request.head, "Authorization");
    if (target(request.head) == http::kSessionPath) {
      peer.reply(404, "{}");
    } else if (authorization == "Bearer old-token") {
      peer.reply(200, state_text());
    } else {
      if (refusals++ < 2) both_refused.arrive_and_wait();
      peer.reply(401, "{}");
    }
  });
  std::vector<Result<AgentState>> answers;
  const auto done = [&](auto result) { answers.push_back(std::move(result)); };
  client_->poll_state(address(/*is_signed=*/false), {.wait = seconds(10)}, done);
  client_->put_assignment(address(/*is_signed=*/false), std::make_shared<const Assignment>(), 0,
                          done);
  loop_.run_until([&] { return answers.size() == 2; });
  for (const Result<AgentState>& answer : answers) {
    EXPECT_TRUE(answer.ok()) << answer.error().message;
  }
}

// A stranger takes the address over, and claims to be an old agent.
TEST_F(AgentSession, DoesNotGoBackToTokensOnceTheAgentHasShownThatItKnowsSessions) {
  PlayedAgent& agent = play("new-token");
  agent.body = state_text();
  std::atomic<bool> is_stranger = false;
  std::mutex mutex;
  std::vector<std::string> heads;
  serve([&](const Request& request, const Peer& peer) {
    if (!is_stranger) return agent(request, peer);
    const std::lock_guard lock(mutex);
    heads.push_back(request.head);
    peer.reply(404, "{}");
  });
  ASSERT_TRUE(poll(address(/*is_signed=*/false)).ok());
  agent.change = [&](Answer& answer) {
    answer.proof.clear();
    is_stranger = true;
  };
  EXPECT_FALSE(poll(address(/*is_signed=*/false)).ok()) << "ends the connection";
  const Result<AgentState> refused = poll(address(/*is_signed=*/false));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kNotFound);
  const std::lock_guard lock(mutex);
  ASSERT_EQ(heads.size(), 1u);
  EXPECT_EQ(heads[0].find("token"), std::string::npos) << heads[0];
}

TEST_F(AgentSession, AsksAgainOnANewConnectionIfTheAgentHadClosedTheOldOne) {
  PlayedAgent& agent = play("new-token");
  agent.body = state_text();
  std::atomic<bool> closes = false;
  serve([&](const Request& request, const Peer& peer) {
    if (closes.exchange(false)) return peer.close();
    agent(request, peer);
  });
  ASSERT_TRUE(poll(address()).ok());
  closes = true;
  EXPECT_TRUE(poll(address()).ok());
}

TEST_F(AgentSession, EncryptsWhatAnAgentAsksToBeEncrypted) {
  PlayedAgent& agent = play("old-token");
  agent.body = state_text();
  serve(agent);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(put(encrypted()).ok());
    const Result<AgentState> state = poll(encrypted());
    ASSERT_TRUE(state.ok()) << state.error().message;
    EXPECT_EQ(state->sequence, 8);
  }
  ASSERT_EQ(agent.read_bodies.size(), 6u);
  const std::string& put_body = agent.read_bodies[0];
  EXPECT_TRUE(parse_json(put_body).ok()) << put_body;
  for (const std::string& body : agent.bodies) EXPECT_EQ(body.find("nodeIndex"), std::string::npos);
  EXPECT_EQ(agent.bodies[1].size(), http::encrypted_size(put_body.size()));
  EXPECT_NE(agent.bodies[1], agent.bodies[3]) << "the same assignment again";
}

TEST_F(AgentSession, BelievesNoEncryptedReplyThatWasChangedOnItsWay) {
  PlayedAgent& agent = play("new-token");
  agent.body = state_text();
  serve(agent);
  for (const auto& change :
       std::vector<std::function<void(Answer&)>>{[](Answer& answer) { answer.body.back() ^= 1; },
                                                 [](Answer& answer) { answer.body = state_text(); },
                                                 [](Answer& answer) { answer.body.clear(); }}) {
    agent.change = nullptr;
    ASSERT_TRUE(poll(encrypted()).ok());
    agent.change = change;
    EXPECT_FALSE(poll(encrypted()).ok());
  }
}

// Such as an older agent, or somebody in between who leaves the word out.
TEST_F(AgentSession, DoesNotDoWithoutEncryption) {
  std::mutex mutex;
  std::vector<std::string> heads;
  http::SessionServer plain({.server_name = kAgent, .secret = "new-token", .nonce = {}});
  serve([&](const Request& request, const Peer& peer) {
    const std::lock_guard lock(mutex);
    heads.push_back(request.head);
    const std::string authorization = field(request.head, "Authorization");
    const size_t word = authorization.find(" encrypted");
    ASSERT_NE(word, std::string::npos);
    const auto proof = plain.greet(authorization.substr(0, word));
    PlayedAgent::write(peer, {.body = "{}", .proof = proof.value_or("")});
  });
  const Result<AgentState> refused = put(encrypted());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kNotFound);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(heads.size(), 1u);
}

TEST_F(AgentSession, SendsTheTokenToNobodyWhoShouldEncrypt) {
  std::vector<std::string> heads;
  serve(old_agent("new-token", heads));
  loop::AgentAddress unmarked = encrypted();
  unmarked.is_signed = false;
  EXPECT_FALSE(poll(unmarked).ok());
  ASSERT_EQ(heads.size(), 1u);
  EXPECT_EQ(heads[0].find("token"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::kube
