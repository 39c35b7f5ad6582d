#pragma once

#include <string>

#include "agent/node/agent.h"
#include "common/http/server.h"

namespace lockstep::node {

// The agent's HTTP endpoints (common/api/agent_messages.h). Checks method, path, caller and message
// on the server's thread, then hands the request to the agent's thread. Errors are {"error":
// "..."}.
class AgentApi final : public http::Handler {
 public:
  // `agent` must outlive the server that uses this handler, and whose guard knows the sessions.
  // `bearer_token` is accepted in place of a session; empty: nothing is.
  AgentApi(Agent& agent, std::string bearer_token)
      : agent_(agent), bearer_token_(std::move(bearer_token)) {}

  http::Admission authorize(const http::Head& head) const override;
  void handle(http::Request request, Respond respond) override;
  http::Response error(unsigned status, const std::string& message) const override;

 private:
  bool is_authenticated(const http::Head& head) const;
  void put_assignment(const http::Request& request, Respond respond);
  void get_state(const std::string& target, Respond respond);

  Agent& agent_;
  std::string bearer_token_;
};

}  // namespace lockstep::node
