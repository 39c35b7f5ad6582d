#include "controller/plan/round_nodes.h"

#include <algorithm>
#include <numeric>

#include "common/api/round_members.h"
#include "controller/plan/damage.h"
#include "controller/plan/elastic.h"
#include "controller/plan/fixed_fields.h"
#include "controller/plan/members.h"
#include "controller/plan/servers.h"
#include "controller/plan/silence.h"

namespace lockstep::plan {
namespace {

// status.rendezvous describes the round. If the spec is no longer what it was made from, the nodes
// are unknown and all members count.
std::vector<int64_t> nodes_in_status(const Pass& pass) {
  std::vector<int64_t> nodes;
  if (pass.seen.problems.empty()) {
    nodes = round_members(*pass.status.rendezvous, processes_per_node(pass.spec()));
  }
  if (nodes == all_members(pass)) return nodes;
  const bool is_known = !nodes.empty() && nodes.back() < std::ssize(pass.members) &&
                        changed_fields(pass.status.fixed, pass.spec()).empty();
  return is_known ? nodes : all_members(pass);
}

enum class OlderRound { kNone, kRuns, kUnknown };

// Returns whether the node may run a round before the current one, other than with a node that has
// left it since. For nodes that a formed round leaves out, that was so when it began. While no
// round is formed, the last one counts as older, too. A pod that was made since then has had no
// assignment. An agent that is silent for long is gone for all we know.
OlderRound older_round_of(const Pass& pass, int64_t node) {
  const PodView* pod = pass.current[static_cast<size_t>(node)];
  if (!runs(pod) || (pass.formed() && !pass.is_in_round(node))) return OlderRound::kNone;
  const AgentState* state = pass.last_report(pod);
  const AgentView* agent = pass.agent(pod);
  const bool is_silent =
      agent != nullptr && pass.now - agent->last_heard >= current_silence_limit(pass);
  if (state == nullptr) {
    const bool is_new = pod->created_in_round == pass.status.round;
    const bool is_refused = agent != nullptr && agent->refuses_token;  // it never got an order
    return is_new || is_silent || is_refused ? OlderRound::kNone : OlderRound::kUnknown;
  }
  if (is_silent || (pass.formed() && state->round >= pass.status.round)) return OlderRound::kNone;
  return std::ranges::any_of(state->workers, &WorkerState::running) ? OlderRound::kRuns
                                                                    : OlderRound::kNone;
}

// Returns whether the node's last report is of the last round, while the next one is gathered.
bool was_in_last_round(const Pass& pass, int64_t node) {
  if (node >= std::ssize(pass.current)) return false;  // a new member
  const AgentState* state = pass.last_report(pass.current[static_cast<size_t>(node)]);
  return state != nullptr && !pass.formed() && state->round == pass.status.round;
}

// Returns the members that are not among these nodes.
std::vector<int64_t> others(const Pass& pass, const std::vector<int64_t>& nodes) {
  std::vector<int64_t> all = all_members(pass);
  std::erase_if(all, [&](int64_t node) { return std::ranges::binary_search(nodes, node); });
  return all;
}

bool all_run(const Pass& pass, const std::vector<int64_t>& nodes) {
  return !nodes.empty() && std::ranges::all_of(pass.pods_of(nodes), runs);
}

}  // namespace

bool runs(const PodView* pod) {
  return pod != nullptr && pod->serves() && pod->phase == "Running" && !pod->ip.empty();
}

bool can_begin(const Pass& pass, const std::vector<int64_t>& nodes) {
  if (!all_run(pass, nodes)) return false;
  if (pass.spec().elastic && !can_train(pass, std::ssize(nodes))) return false;
  if (nodes.size() == pass.members.size()) return true;
  return std::ranges::none_of(others(pass, nodes), [&](int64_t node) {
    return older_round_of(pass, node) == OlderRound::kUnknown;
  });
}

void requeue_for_silence(Pass& pass, const std::vector<int64_t>& nodes) {
  for (const int64_t node : others(pass, nodes)) {
    const AgentView* agent = pass.agent(pass.current[static_cast<size_t>(node)]);
    if (agent == nullptr || older_round_of(pass, node) != OlderRound::kUnknown) continue;
    pass.requeue(agent->last_heard + current_silence_limit(pass));
  }
}

std::vector<int64_t> wanted_nodes(const Pass& pass) {
  std::vector<int64_t> nodes = pass.choose(pass);
  if (nodes.size() == pass.members.size()) return nodes;
  const size_t chosen = nodes.size();
  // Then the last round is not whole: a node leaves it for the next one.
  const bool ends_last_round =
      std::ranges::any_of(nodes, [&](int64_t node) { return was_in_last_round(pass, node); });
  for (const int64_t node : others(pass, nodes)) {
    if (ends_last_round && was_in_last_round(pass, node)) continue;
    if (older_round_of(pass, node) == OlderRound::kRuns) nodes.push_back(node);
  }
  std::inplace_merge(nodes.begin(), nodes.begin() + static_cast<int64_t>(chosen), nodes.end());
  return nodes;
}

void replace_lost(Pass& pass, const std::vector<int64_t>& lost) {
  for (const int64_t index : lost) {
    ++pass.members[static_cast<size_t>(index)];
    pass.current[static_cast<size_t>(index)] = nullptr;
  }
  pass.status.members = members_to_text(pass.members);
}

std::vector<int64_t> all_members(const Pass& pass) {
  std::vector<int64_t> nodes(pass.members.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

bool is_subset(const std::vector<int64_t>& nodes, const std::vector<int64_t>& of) {
  return std::includes(of.begin(), of.end(), nodes.begin(), nodes.end());
}

std::vector<int64_t> members_of_round(const Pass& pass) {
  return pass.spec().elastic ? elastic_nodes(pass) : all_members(pass);
}

std::vector<int64_t> nodes_of_round(const Pass& pass) {
  if (!pass.status.rendezvous) return wanted_nodes(pass);
  if (has_places(pass) && has_views(pass)) return nodes_of_view(pass);
  std::vector<int64_t> nodes = nodes_in_status(pass);
  if (pass.formed()) return nodes;
  // Nodes that the round was to have before count only as long as it still is to have them.
  std::vector<int64_t> wanted = wanted_nodes(pass);
  return is_subset(nodes, wanted) ? nodes : wanted;
}

}  // namespace lockstep::plan
