#pragma once

#include <string>

#include "agent/node/agent.h"
#include "common/http/server.h"

namespace lockstep::node {

// The agent's HTTP endpoints (common/api/agent_messages.h). Checks method, path, token and message
// on the server's thread, then hands the request to the agent's thread. Errors are {"error":
// "..."}.
class AgentApi final : public http::Handler {
 public:
  // `agent` must outlive the server that uses this handler.
  AgentApi(Agent& agent, std::string token) : agent_(agent), token_(std::move(token)) {}

  http::Admission authorize(const http::Head& head) const override;
  void handle(http::Request request, Respond respond) override;
  http::Response error(unsigned status, const std::string& message) const override;

 private:
  void put_assignment(const http::Request& request, Respond respond);
  void get_state(const std::string& target, Respond respond);

  Agent& agent_;
  std::string token_;
};

}  // namespace lockstep::node
