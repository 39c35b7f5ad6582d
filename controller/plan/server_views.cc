// The policy that makes the next view of a round's servers.
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "controller/plan/round_nodes.h"
#include "controller/plan/server_round.h"
#include "controller/plan/servers.h"

namespace lockstep::plan {
namespace {

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

// Returns the next view if pods that servers await run by now.
std::optional<ServersView> view_with_pods(const Pass& pass, const ServersView& view) {
  std::map<size_t, ServerMove> moves;
  for (size_t server = 0; server < view.servers.size(); ++server) {
    const PodView* pod = pod_of_server(pass, server);
    if (!awaits_pod(view.servers[server]) || !runs(pod)) continue;
    moves[server].to = {.incarnation = pod->incarnation, .host = pod->ip};
  }
  std::map<int64_t, ServerMove> workers;
  for (const auto& [rank, move] : view.worker_moves) {
    const PodView* pod = pass.current[static_cast<size_t>(rank)];
    if (!awaits_pod(view, rank) || !runs(pod)) continue;
    workers[rank] = {.from = move.from, .to = {.incarnation = pod->incarnation, .host = pod->ip}};
  }
  if (moves.empty() && workers.empty()) return std::nullopt;
  return moved_view(view, moves, workers);
}

// Returns the next view of a round whose servers are to become more or fewer, one at a time.
std::optional<ServersView> view_with_wanted_servers(const Pass& pass, const ServersView& view) {
  if (view.places == 0 || !may_go_on(pass)) return std::nullopt;
  const size_t counted = counted_servers(view);
  const size_t last = counted - 1;
  if (view.servers[last].state == ServerState::kLeaving) {
    const std::optional<ServerPlace> first = first_place(pass, view, last);
    if (!first) return std::nullopt;
    return view_without_last_server(view, *first, pass.members[node_of_server(pass, last)]);
  }
  const auto wanted = static_cast<size_t>(pass.spec().parameterServers->nodes);
  if (wanted < counted) return view_with_leaving_server(view);
  const PodView* pod = pod_of_server(pass, counted);
  if (wanted == counted || !runs(pod)) return std::nullopt;
  const AgentState* state = pass.last_report(pod);
  if (state == nullptr || state->protocol < kProtocolWithPlaces) return std::nullopt;
  const ServersView next =
      view_with_new_server(view, {.incarnation = pod->incarnation, .host = pod->ip});
  return fits(next) ? std::optional(next) : std::nullopt;
}

// Returns the next view if the new server is wanted no more and holds nothing yet. With copies, it
// is filled nevertheless: the order of chains follows from who has handed something back.
std::optional<ServersView> view_without_unwanted_server(const Pass& pass, const ServersView& view) {
  const size_t counted = counted_servers(view);
  const auto wanted = static_cast<size_t>(pass.spec().parameterServers->nodes);
  const bool is_one = counted < view.servers.size() && view.servers[counted].is_new &&
                      view.servers[counted].state == ServerState::kGone;
  if (!is_one || wanted > counted || pass.spec().parameterServers->copies > 0) return std::nullopt;
  return view_without_new_server(view);
}

// Returns the next view, if every server that holds something follows this one. So none misses that
// a server was gone, or that it joined.
std::optional<ServersView> view_after(const Pass& pass, const ServersView& view) {
  bool is_filling = false;
  std::optional<size_t> back;
  size_t gone = 0;
  for (size_t server = 0; server < view.servers.size(); ++server) {
    const WorkerState* process = follower(pass, view, server);
    if (view.servers[server].state == ServerState::kLeft) continue;
    if (view.servers[server].state == ServerState::kGone) {
      ++gone;
      const bool serves = process != nullptr && process->phase >= WorkerPhase::kTraining;
      if (serves && !back) back = server;
      continue;
    }
    if (process == nullptr) return std::nullopt;
    is_filling |= process->is_filling;
  }
  if (const auto next = view_with_pods(pass, view)) return next;
  const size_t joining = joining_server(view);
  if (joining < view.servers.size()) {
    if (is_filling) return std::nullopt;
    return next_view(view, joining, ServerState::kWhole);
  }
  if (const auto next = view_without_unwanted_server(pass, view)) return next;
  if (back) return next_view(view, *back, ServerState::kJoining);
  return is_filling || gone > 0 ? std::nullopt : view_with_wanted_servers(pass, view);
}

// Says what the next view changes.
void tell_of(Pass& pass, const ServersView& view, const ServersView& next) {
  const auto rank = [&](size_t server) {
    return "rank " + std::to_string(node_of_server(pass, server));
  };
  const size_t joined = joining_server(view);
  const size_t before = counted_servers(view);
  const size_t after = counted_servers(next);
  const std::string now =
      "the round has " + std::to_string(after) + (after == 1 ? " server now" : " servers now");
  if (after > before) {
    pass.plan.why = "a server that was added has been filled";
    pass.event(false, "ServerAdded", rank(before) + " holds its share: " + now);
  } else if (after < before) {
    pass.plan.why = "a server has handed over what it held";
    pass.event(false, "ServerRemoved", rank(after) + " has handed over what it held: " + now);
  } else if (joined < view.servers.size() && next.servers[joined].state == ServerState::kWhole) {
    pass.plan.why = "a server has been filled";
    pass.event(false, "ServerFilled", rank(joined) + " holds all of its parameters again");
  } else if (joining_server(next) < next.servers.size()) {
    pass.plan.why = "a server that was started anew joins";
  } else if (next.servers[after - 1].state == ServerState::kLeaving) {
    pass.plan.why = "a server hands over what it holds";
  } else {
    pass.plan.why = "a server or worker is in another pod, or a server is added or given up";
  }
}

}  // namespace

// Tells where the next pods of lost ones are, lets servers that were started anew join, one at a
// time, and counts those that are filled. Then adds one, or lets one leave, as the spec has it.
Verdict servers(Pass& pass) {
  if (!has_views(pass) || pass.status.serversView.empty()) return Verdict::kNext;
  const ServersView view = servers_view(pass);
  const std::optional<ServersView> next = view_after(pass, view);
  if (!next) return Verdict::kNext;
  tell_of(pass, view, *next);
  pass.status.serversView = text_of(*next);
  return Verdict::kDecided;
}

}  // namespace lockstep::plan
