#include "controller/plan/servers.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "controller/plan/conditions.h"
#include "controller/plan/damage.h"

namespace lockstep::plan {
namespace {

// Returns the place of the node's server in the view; nullopt for a worker's node. Jobs with
// servers leave no node out, and those with copies have one process on each.
std::optional<size_t> server_of_node(const Pass& pass, int64_t node_index) {
  const int64_t place = node_index - pass.spec().nodes;
  const bool is_server = place >= 0 && place < pass.spec().parameterServers->nodes;
  return is_server ? std::optional(static_cast<size_t>(place)) : std::nullopt;
}

const PodView* pod_of_server(const Pass& pass, size_t server) {
  return pass.current[static_cast<size_t>(pass.spec().nodes) + server];
}

// Returns the server's process if it runs and follows the view.
const WorkerState* follower(const Pass& pass, const ServersView& view, size_t server) {
  const AgentState* state = pass.current_report(pod_of_server(pass, server));
  if (state == nullptr || state->workers.size() != 1) return nullptr;
  const WorkerState& process = state->workers.front();
  const ServerStanding& standing = view.servers[server];
  const bool is_old =
      standing.state == ServerState::kGone && state->servers_started < standing.since;
  const bool follows = process.running && process.servers_view >= view.number;
  return follows && !is_old ? &process : nullptr;
}

bool is_lifeless(const Pass& pass, size_t server) {
  const AgentState* state = pass.current_report(pod_of_server(pass, server));
  return state != nullptr && state->workers.size() == 1 && state->workers.front().running &&
         state->workers.front().is_lifeless;
}

bool all_workers_train(const Pass& pass) {
  const auto workers = std::span(pass.current).first(static_cast<size_t>(pass.spec().nodes));
  return std::ranges::all_of(workers, [&](const PodView* pod) {
    const AgentState* state = pass.current_report(pod);
    return state != nullptr && std::ranges::all_of(state->workers, [](const WorkerState& worker) {
             return worker.running || worker.exit_code == 0;
           });
  });
}

// Returns the next view, if every server that holds something follows this one. So none misses that
// a server was gone, or that it joined.
std::optional<ServersView> view_after(const Pass& pass, const ServersView& view) {
  bool is_filling = false;
  std::optional<size_t> back;
  for (size_t server = 0; server < view.servers.size(); ++server) {
    const WorkerState* process = follower(pass, view, server);
    if (view.servers[server].state == ServerState::kGone) {
      const bool serves = process != nullptr && process->phase >= WorkerPhase::kTraining;
      if (serves && !back) back = server;
      continue;
    }
    if (process == nullptr) return std::nullopt;
    is_filling |= process->is_filling;
  }
  const size_t joining = joining_server(view);
  if (joining < view.servers.size()) {
    if (is_filling) return std::nullopt;
    return next_view(view, joining, ServerState::kWhole);
  }
  if (!back) return std::nullopt;
  return next_view(view, *back, ServerState::kJoining);
}

}  // namespace

bool has_copies(const Pass& pass) {
  const auto& servers = pass.spec().parameterServers;
  return pass.formed() && servers && servers->copies > 0 &&
         std::ssize(pass.current) == pass.spec().nodes + servers->nodes;
}

// A text that somebody else wrote counts as the first view.
ServersView servers_view(const Pass& pass) {
  const auto servers = static_cast<size_t>(pass.spec().parameterServers->nodes);
  Result<ServersView> view = servers_view_from_text(pass.status.serversView, servers);
  return view.ok() ? std::move(*view) : first_servers_view(servers);
}

std::set<int64_t> spared_nodes(const Pass& pass) {
  std::set<int64_t> nodes;
  if (!has_copies(pass) || pass.status.serversView.empty()) return nodes;
  int64_t node = pass.spec().nodes;
  for (const ServerStanding& server : servers_view(pass).servers) {
    if (server.state != ServerState::kWhole) nodes.insert(node);
    ++node;
  }
  return nodes;
}

bool is_known_to_be_gone(const Pass& pass, const PodView& pod, const AgentState& state) {
  if (!has_copies(pass)) return false;
  const std::optional<size_t> server = server_of_node(pass, pod.node_index);
  if (!server) return false;
  const ServerStanding standing = servers_view(pass).servers[*server];
  return standing.state == ServerState::kGone && state.servers_started < standing.since;
}

std::optional<FailureStatus> lifeless_server(const Pass& pass) {
  if (!has_copies(pass)) return std::nullopt;
  for (int64_t server = 0; server < pass.spec().parameterServers->nodes; ++server) {
    if (!is_lifeless(pass, static_cast<size_t>(server))) continue;
    const PodView& pod = *pod_of_server(pass, static_cast<size_t>(server));
    const AgentState& state = *pass.current_report(&pod);
    FailureStatus failure;
    failure.rank = state.workers.front().rank;
    failure.nodeIndex = pod.node_index;
    failure.node = pod.node_name;
    failure.exitCode = -1;
    failure.reason = kHang;
    failure.message = "its process shows no sign of life";
    if (is_known_to_be_gone(pass, pod, state) || !can_go_on_without(pass, failure)) continue;
    return failure;
  }
  return std::nullopt;
}

bool can_go_on_without(const Pass& pass, const FailureStatus& failure) {
  if (!has_copies(pass) || failure.rank < 0 || !is_true(pass.status, kRunning)) return false;
  const std::optional<size_t> server = server_of_node(pass, failure.nodeIndex);
  const bool is_its_own = failure.reason != kSuspected && failure.exitCode >= 0;
  if (!server || !(is_its_own || is_lifeless(pass, *server)) || !all_workers_train(pass)) {
    return false;
  }
  const ServersView without = next_view(servers_view(pass), *server, ServerState::kGone);
  return holds_everything(without, pass.spec().parameterServers->copies);
}

void lose_server(Pass& pass, const FailureStatus& failure) {
  const std::optional<size_t> server = server_of_node(pass, failure.nodeIndex);
  if (!server) return;
  pass.status.serversView = text_of(next_view(servers_view(pass), *server, ServerState::kGone));
}

// Lets servers that were started anew join, one at a time, and counts those that are filled.
Verdict servers(Pass& pass) {
  if (!has_copies(pass) || pass.status.serversView.empty()) return Verdict::kNext;
  const ServersView view = servers_view(pass);
  const std::optional<ServersView> next = view_after(pass, view);
  if (!next) return Verdict::kNext;
  const size_t joining = joining_server(*next);
  const bool joins = joining < next->servers.size();
  const size_t server = joins ? joining : joining_server(view);
  const std::string rank = std::to_string(pass.spec().nodes + static_cast<int64_t>(server));
  if (!joins)
    pass.event(false, "ServerFilled", "rank " + rank + " holds all of its parameters again");
  pass.plan.why = joins ? "a server that was started anew joins" : "a server has been filled";
  pass.status.serversView = text_of(*next);
  return Verdict::kDecided;
}

}  // namespace lockstep::plan
