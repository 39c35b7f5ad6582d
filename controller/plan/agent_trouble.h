#pragma once

#include <optional>
#include <string>

#include "controller/plan/pass.h"

namespace lockstep::plan {

// An agent that answers, but with nothing the controller can use. Its pod keeps running and is not
// recreated: a new one would behave the same.
struct AgentTrouble {
  std::string reason;   // AgentRefusesToken, AgentTooOld, AgentTooNew, AgentReportsTooMuch
  std::string message;  // what is wrong, and what to do about it
};

// Returns the trouble of the first member that has one.
std::optional<AgentTrouble> agent_trouble(const Pass& pass);

// Returns the trouble that the next round would have with agents of the one that runs, because of
// rules about losses that were added since it began.
std::optional<AgentTrouble> trouble_of_next_round(const Pass& pass);

}  // namespace lockstep::plan
