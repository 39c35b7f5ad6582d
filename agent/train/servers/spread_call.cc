#include "agent/train/servers/spread_call.h"

#include <algorithm>
#include <utility>

namespace lockstep::train {

size_t leader_of(const ServersView& view) {
  const auto order = [](const ServerStanding& server) {
    return std::pair(!is_holding(server.state), server.since);
  };
  return static_cast<size_t>(std::ranges::min_element(view.servers, {}, order) -
                             view.servers.begin());
}

// A server that changed since the call began may have been started anew meanwhile.
bool SpreadCall::is_lost(const Sent& sent, const ServerStanding& now) const {
  const bool has_failed = sent.call.is_done() && !sent.call.status().ok();
  return has_failed || now.since > sent.in_view;
}

void SpreadCall::follow(const ServersView& view) {
  leader_ = leader_of(view);
  for (size_t server = 0; server < view.servers.size(); ++server) {
    const ServerStanding& now = view.servers[server];
    const bool leads = server == leader_;
    const auto known = sent_.find(server);
    const bool has_it =
        known != sent_.end() && !is_lost(known->second, now) && known->second.leads == leads;
    if (!is_absent(now.state) && has_it) continue;
    if (known != sent_.end()) sent_.erase(known);
    if (is_absent(now.state)) continue;
    const rpc::CallOptions options{.head = leads ? heads_.leader : heads_.others};
    sent_[server] = {.call = begin_(server, options), .in_view = view.number, .leads = leads};
  }
}

SpreadCall::Outcome SpreadCall::outcome() const {
  Outcome outcome;
  for (const auto& [server, sent] : sent_) {
    if (!sent.call.is_done()) {
      ++outcome.pending;
    } else if (sent.call.status().ok()) {
      ++outcome.answered;
      if (outcome.first == nullptr) outcome.first = &sent.call;
      if (server == leader_) outcome.leaders = &sent.call;
    } else if (outcome.failure.ok()) {
      outcome.failure = sent.call.status();
    }
  }
  return outcome;
}

std::vector<const rpc::Call*> SpreadCall::answers() const {
  std::vector<const rpc::Call*> answers;
  for (const auto& [server, sent] : sent_) {
    if (sent.call.is_done() && sent.call.status().ok()) answers.push_back(&sent.call);
  }
  return answers;
}

}  // namespace lockstep::train
