#pragma once

#include <string>

#include "agent/node/agent.h"
#include "common/http/server.h"

namespace lockstep {

// The agent's endpoints (common/api/agent_messages.h): checks method, path, token and message on
// the server's thread, and has the agent answer on its own. Errors are {"error": "..."}.
class AgentApi final : public http::Handler {
 public:
  // `agent` outlives the server that this handler is given to.
  AgentApi(Agent& agent, std::string token) : agent_(agent), token_(std::move(token)) {}

  http::Admission admit(const http::Head& head) const override;
  void handle(http::Request request, Respond respond) override;
  http::Response error(unsigned status, const std::string& message) const override;

 private:
  bool authorised(const std::string& authorization) const;
  void put_assignment(const http::Request& request, Respond respond);
  void get_state(const std::string& target, Respond respond);

  Agent& agent_;
  std::string token_;
};

}  // namespace lockstep
