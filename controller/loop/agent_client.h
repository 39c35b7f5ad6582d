#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/api/agent_messages.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "controller/plan/plan.h"

namespace lockstep::loop {

struct AgentAddress {
  std::string ip;
  std::string agent{};                // its pod's name
  std::vector<std::string> tokens{};  // the job's token under each key, newest first
  bool is_signed = false;             // it knows sessions: never send it a token
  bool is_encrypted = false;          // it wants them encrypted
};

inline AgentAddress address_of(const plan::AgentTarget& target,
                               const std::vector<std::string>& tokens) {
  return {.ip = target.ip,
          .agent = target.pod_name,
          .tokens = tokens,
          .is_signed = target.is_signed,
          .is_encrypted = target.is_encrypted};
}

// A request for an agent's state that waits until there is something new.
struct StatePoll {
  int64_t since = 0;  // the sequence that is known
  Duration wait{};    // until an answer without news
  // Until an answer that tells of mere progress; older agents tell it at once, as all
  // agents do with other news.
  Duration progress_after{};
};

// Asynchronous client of the agents' HTTP interface (common/api/agent_messages.h), with the same
// thread and the same guarantees as ApiClient. Errors:
// - kConflict: the agent knows a later round, or another hash of this one
// - kUnavailable, kTimeout: try again
// - kNotFound: it does not have the job's token, or knows no sessions although it should
// - kInvalid: it rejects the request, or its answer can't be parsed
class AgentClient {
 public:
  using Done = std::function<void(Result<AgentState>)>;

  virtual ~AgentClient() = default;
  // Sends the assignment with `node_index` in place of its own.
  virtual void put_assignment(const AgentAddress& agent,
                              const std::shared_ptr<const Assignment>& assignment,
                              int64_t node_index, Done done) = 0;
  virtual void poll_state(const AgentAddress& agent, const StatePoll& poll, Done done) = 0;
  // Nobody asks this agent any more: its connections may be closed.
  virtual void forget(const AgentAddress& agent) = 0;
};

}  // namespace lockstep::loop
