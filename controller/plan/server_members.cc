// Members of a job whose servers come and go while its round goes on.
#include <algorithm>
#include <numeric>
#include <set>

#include "common/api/server_places.h"
#include "common/api/worker_config.h"
#include "controller/plan/server_round.h"
#include "controller/plan/servers.h"
#include "controller/plan/silence.h"

namespace lockstep::plan {
namespace {

// Whether the process of a server that has left may not have ended yet: it would ask all ranks that
// still listen to it to stop if its pod were stopped now. One whose agent is silent for long is
// gone for all we know.
bool may_run_still(const Pass& pass, const PodView* pod) {
  if (pod == nullptr || !pod->live() || pod->phase != "Running") return false;
  if (const AgentState* state = pass.current_report(pod)) {
    return std::ranges::any_of(state->workers, &WorkerState::running);
  }
  const AgentView* agent = pass.agent(pod);
  return agent == nullptr || pass.now < silent_at(pass, *pod, current_silence_limit(pass));
}

// Whether the server has left, and its pod is still there. A further pod of its node is one for a
// server that is still to be added.
bool is_pod_that_left(const Pass& pass, const ServersView& view, size_t server) {
  const ServerStanding& standing = view.servers[server];
  const PodView* pod = pod_of_server(pass, server);
  return standing.state == ServerState::kLeft && pod != nullptr && pod->live() &&
         pod->incarnation == standing.move->to.incarnation;
}

}  // namespace

bool has_places(const Pass& pass) {
  return pass.status.serversView.find('#') != std::string::npos;
}

std::string view_of_new_round(const Pass& pass) {
  const auto& servers = pass.spec().parameterServers;
  const bool may_have =
      servers && processes_per_node(pass.spec()) == 1 && all_speak(pass, kProtocolWithPlaces, {});
  if (!may_have) return "";
  const auto count = pass.round_nodes.size() - static_cast<size_t>(pass.spec().nodes);
  return text_of(first_servers_view(count, places_for(count)));
}

std::vector<int64_t> nodes_of_view(const Pass& pass) {
  const ServersView view = servers_view(pass);
  size_t servers = view.servers.size();
  while (servers > 0 && view.servers[servers - 1].state == ServerState::kLeft &&
         !is_pod_that_left(pass, view, servers - 1)) {
    --servers;
  }
  const size_t nodes = node_of_server(pass, servers);
  std::vector<int64_t> all(std::min(nodes, pass.members.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::set<int64_t> nodes_that_left(const Pass& pass) {
  std::set<int64_t> nodes;
  if (!has_places(pass) || !has_views(pass)) return nodes;
  const ServersView view = servers_view(pass);
  for (size_t server = 0; server < view.servers.size(); ++server) {
    if (!is_pod_that_left(pass, view, server)) continue;
    nodes.insert(static_cast<int64_t>(node_of_server(pass, server)));
  }
  return nodes;
}

int64_t incarnation_that_left(const Pass& pass, int64_t node_index) {
  if (!has_places(pass) || !has_views(pass)) return 0;
  const ServersView view = servers_view(pass);
  const std::optional<size_t> server = server_of_node(pass, view, node_index);
  const bool has_left = server && view.servers[*server].state == ServerState::kLeft;
  return has_left ? view.servers[*server].move->to.incarnation : 0;
}

const PodView* pod_too_old_to_join(const Pass& pass) {
  if (!has_places(pass) || !has_views(pass)) return nullptr;
  const size_t counted = counted_servers(servers_view(pass));
  const auto wanted = static_cast<size_t>(pass.spec().parameterServers->nodes);
  const PodView* pod = wanted > counted ? pod_of_server(pass, counted) : nullptr;
  const AgentState* state = pod != nullptr && runs(pod) ? pass.last_report(pod) : nullptr;
  return state != nullptr && state->protocol < kProtocolWithPlaces ? pod : nullptr;
}

size_t members_to_keep(const Pass& pass) {
  if (!has_places(pass) || !has_views(pass)) return 0;
  const ServersView view = servers_view(pass);
  size_t keep = view.servers.size();
  while (keep > 0 && view.servers[keep - 1].state == ServerState::kLeft) {
    const bool is_its_pod = is_pod_that_left(pass, view, keep - 1);
    if (is_its_pod && may_run_still(pass, pod_of_server(pass, keep - 1))) break;
    --keep;
  }
  return node_of_server(pass, keep);
}

}  // namespace lockstep::plan
