#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/api/agent_messages.h"
#include "controller/kube/plain_http.h"
#include "controller/loop/agent_client.h"

namespace lockstep::kube {

struct AgentHttpOptions {
  int64_t port = kAgentPort;
  Duration put_deadline = std::chrono::seconds(10);
  // Time allowed beyond a poll's own wait: short enough for another request before the silence is
  // too long.
  Duration poll_margin = std::chrono::seconds(3);
};

// Agents over HTTP in signed sessions, with one client and its connections per agent. An address
// may belong to another agent by now, or to several agents at the same time (pods in the host
// network). A client is destroyed only once no request is open on it.
class AgentHttpClient final : public loop::AgentClient {
 public:
  AgentHttpClient(AgentHttpOptions options, Mailbox& mailbox, loop::Timers& timers)
      : options_(options), mailbox_(mailbox), timers_(timers) {}

  void put_assignment(const loop::AgentAddress& agent,
                      const std::shared_ptr<const Assignment>& assignment, int64_t node_index,
                      Done done) override;
  void poll_state(const loop::AgentAddress& agent, const loop::StatePoll& poll, Done done) override;
  void forget(const loop::AgentAddress& agent) override;

 private:
  struct Client {
    PlainHttpClient http;
    size_t open = 0;  // requests without an answer
    bool is_forgotten = false;
  };

  void send(const loop::AgentAddress& agent, HttpRequest request, Done done);
  Client& client(const std::string& key, const loop::AgentAddress& agent);
  const std::string& text_of(const std::shared_ptr<const Assignment>& assignment);

  AgentHttpOptions options_;
  Mailbox& mailbox_;
  loop::Timers& timers_;
  const std::shared_ptr<PlainNetwork> network_ = start_plain_network();
  std::map<std::string, std::unique_ptr<Client>> clients_;  // by address, pod and token
  std::weak_ptr<const Assignment>
      // The assignment that was put last; last_text_ is its document without nodeIndex and without
      // the end.
      last_;
  std::string last_text_;
};

}  // namespace lockstep::kube
