#include "controller/kube/agent_http_client.h"

#include "common/base/json.h"

namespace lockstep::kube {
namespace {

constexpr size_t kReplyBytesMax = 2 * kAgentStateBytesMax;
constexpr JsonLimits kReplyLimits{
    .bytes_max = kReplyBytesMax, .depth_max = 16, .values_max = 20'000};

Result<AgentState> read_state(const Result<HttpReply>& reply) {
  if (!reply.ok()) return reply.error();
  if (reply->status != 200) {
    const std::string message =
        "[agent] HTTP " + std::to_string(reply->status) + ": " + reply->body.substr(0, 300);
    if (reply->status == 401) return not_found(message);  // from an agent without sessions
    if (reply->status == 409) return conflict(message);
    if (reply->status >= 500 || reply->status == 429) return unavailable(message);
    return invalid(message);
  }
  TRY_ASSIGN(const Json document, parse_json(reply->body, kReplyLimits));
  return agent_state_from_json(document);
}

// Query parameter with the newest protocol version that we accept in the answer.
std::string newest_protocol() {
  return "protocol=" + std::to_string(kProtocolNewest);
}

std::string key_of(const loop::AgentAddress& agent) {
  return agent.ip + "/" + agent.agent + "/" + (agent.tokens.empty() ? "" : agent.tokens.front());
}

}  // namespace

AgentHttpClient::Client& AgentHttpClient::client(const std::string& key,
                                                 const loop::AgentAddress& agent) {
  std::unique_ptr<Client>& client = clients_[key];
  if (client == nullptr) {
    const PlainHttpClient::Server server{agent.ip, static_cast<uint16_t>(options_.port)};
    PlainSession session{.server_name = agent.agent,
                         .secrets = agent.tokens,
                         .may_send_secret = !agent.is_signed,
                         .encrypts = agent.is_encrypted};
    client.reset(new Client{
        .http = PlainHttpClient(server, mailbox_, timers_, network_, std::move(session))});
  }
  return *client;
}

void AgentHttpClient::send(const loop::AgentAddress& agent, HttpRequest request, Done done) {
  request.reply_bytes_max = kReplyBytesMax;
  std::string key = key_of(agent);
  Client& to = client(key, agent);
  to.is_forgotten = false;
  ++to.open;
  to.http.send(std::move(request), [this, key = std::move(key),
                                    done = std::move(done)](const Result<HttpReply>& reply) {
    const auto from = clients_.find(key);
    if (--from->second->open == 0 && from->second->is_forgotten) clients_.erase(from);
    done(read_state(reply));
  });
}

void AgentHttpClient::forget(const loop::AgentAddress& agent) {
  const auto found = clients_.find(key_of(agent));
  if (found == clients_.end()) return;
  found->second->is_forgotten = true;
  if (found->second->open == 0) clients_.erase(found);
}

// Serialized once for all nodes of a job, which get it one after the other.
const std::string& AgentHttpClient::text_of(const std::shared_ptr<const Assignment>& assignment) {
  if (last_.lock() != assignment) {
    Json document = to_json(*assignment);
    document.erase("nodeIndex");
    last_text_ = dump_json(document);
    last_text_.pop_back();
    last_ = assignment;
  }
  return last_text_;
}

void AgentHttpClient::put_assignment(const loop::AgentAddress& agent,
                                     const std::shared_ptr<const Assignment>& assignment,
                                     int64_t node_index, Done done) {
  send(agent,
       {.method = "PUT",
        .path_and_query = "/v1/assignment?" + newest_protocol(),
        .body = text_of(assignment) + ",\"nodeIndex\":" + std::to_string(node_index) + "}",
        .deadline = options_.put_deadline},
       std::move(done));
}

void AgentHttpClient::poll_state(const loop::AgentAddress& agent, const loop::StatePoll& poll,
                                 Done done) {
  using std::chrono::duration_cast;
  const auto seconds = duration_cast<std::chrono::seconds>(poll.wait).count();
  const auto progress = duration_cast<std::chrono::milliseconds>(poll.progress_after).count();
  std::string path = "/v1/state?since=" + std::to_string(poll.since) +
                     "&timeoutSeconds=" + std::to_string(seconds) + "&" + newest_protocol();
  if (progress > 0) path += "&progressMilliseconds=" + std::to_string(progress);
  send(agent,
       {.method = "GET",
        .path_and_query = std::move(path),
        .deadline = poll.wait + options_.poll_margin},
       std::move(done));
}

}  // namespace lockstep::kube
