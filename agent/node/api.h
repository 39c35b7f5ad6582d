#pragma once

#include <string>

#include "agent/node/agent.h"
#include "agent/node/http/server.h"

namespace lockstep {

// The agent's endpoints (common/api/agent_messages.h): checks method, path, token and message on
// the server's thread, and has the agent answer on its own. Errors are {"error": "..."}.
class AgentApi final : public HttpHandler {
 public:
  // `agent` outlives the server that this handler is given to.
  AgentApi(Agent& agent, std::string token) : agent_(agent), token_(std::move(token)) {}

  HttpAdmission admit(const HttpHead& head) const override;
  void handle(HttpRequest request, Respond respond) override;
  HttpResponse error(unsigned status, const std::string& message) const override;

 private:
  bool authorised(const std::string& authorization) const;
  void put_assignment(const std::string& body, Respond respond);
  void get_state(const std::string& target, Respond respond);

  Agent& agent_;
  std::string token_;
};

}  // namespace lockstep
