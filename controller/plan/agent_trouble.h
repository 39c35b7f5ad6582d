#pragma once

#include <optional>
#include <string>

#include "controller/plan/pass.h"

namespace lockstep {

// An agent that answers, but nothing that can be used. Its pod runs on and is not made anew for
// that: the next one would be no different.
struct AgentTrouble {
  std::string reason;   // AgentRefusesToken, AgentTooOld, AgentTooNew
  std::string message;  // what is the matter, and what to do
};

// Of the first of the members that has any.
std::optional<AgentTrouble> agent_trouble(const Pass& pass);

}  // namespace lockstep
