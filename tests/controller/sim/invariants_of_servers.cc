// Invariants of jobs with servers.
#include <algorithm>

#include "common/api/servers_view.h"
#include "controller/plan/members.h"
#include "tests/controller/sim/invariants.h"

namespace lockstep::sim {
namespace {

Result<ServersView> view_in(const Json& status, size_t servers) {
  return servers_view_from_text(string_or(status, "serversView", ""), servers);
}

}  // namespace

// Views are numbered without gaps within a round, and end with it. Each range has a primary that
// holds it: a server that counts has all that it should, unless it has just died.
void Invariants::check_servers(const Json& job, const Json& after) {
  const Json& before = member(job, "status");
  const std::string text = string_or(after, "serversView", "");
  if (text == string_or(before, "serversView", "")) {
    const bool is_same = int_or(before, "round", 0) == int_or(after, "round", 0);
    if (!is_same && !text.empty()) chance_.violate("servers", "a view outlived its round");
    return;
  }
  const Json& spec = member(member(job, "spec"), "parameterServers");
  const int64_t copies = int_or(spec, "copies", 0);
  const auto count = static_cast<size_t>(int_or(spec, "nodes", 0));
  if (text.empty()) return;
  const Result<ServersView> now = view_in(after, count);
  const Result<ServersView> was = view_in(before, count);
  if (!now.ok() || !was.ok()) return chance_.violate("servers", "status has no view: " + text);
  chance_.count(Transition::kServersView);
  const bool is_next =
      now->number == was->number + 1 && int_or(before, "round", 0) == int_or(after, "round", 0);
  if (!is_next) chance_.violate("servers", "a view does not follow the one before: " + text);
  if (!holds_everything(*now, copies)) {
    chance_.violate("servers", "a range has no primary in view " + text);
  }
  check_new_workers(job, after, *now);
  const std::vector<int64_t> members = plan::members_from_text(string_or(after, "members", ""));
  for (size_t server = 0; server < count; ++server) {
    check_holds(job, after, *now, server);
    const std::optional<ServerMove>& move = now->servers[server].move;
    const bool is_filled = move && now->servers[server].state == ServerState::kWhole &&
                           was->servers[server].state != ServerState::kWhole;
    if (is_filled) chance_.count(Transition::kServerMoved);
    const size_t node = members.size() - count + server;
    if (members.size() < count || (move && move->to.incarnation != members[node])) {
      chance_.violate("servers", "a view has a server in another pod than the member's: " + text);
    }
  }
}

// A worker is started anew because its process has failed, which an agent may have told falsely.
void Invariants::check_new_workers(const Json& job, const Json& after, const ServersView& view) {
  const int64_t workers = int_or(member(job, "spec"), "nodes", 1);
  for (const auto& [rank, since] : view.workers) {
    if (rank >= workers) chance_.violate("servers", "a view has a worker that is none");
    if (since < view.number || rank >= workers) continue;
    chance_.count(Transition::kWorkerReturned);
    const Node* node = node_of_rank(job, after, rank);
    if (node == nullptr) continue;
    const std::string uid = uid_of(job);
    if (nodes_.has_failed(uid, node->index, node->incarnation, int_or(after, "round", 0))) continue;
    if (nodes_.sent_false_report(uid, node->index, node->incarnation)) continue;
    chance_.violate("servers", "a worker is started anew that has not failed");
  }
}

bool Invariants::holds_nothing(const Json& job, const Json& status, int64_t node) {
  const Json& spec = member(member(job, "spec"), "parameterServers");
  const int64_t servers = int_or(spec, "nodes", 0);
  const int64_t server = node - int_or(member(job, "spec"), "nodes", 1);
  if (int_or(spec, "copies", 0) == 0 || server < 0 || server >= servers) return false;
  const Result<ServersView> view = view_in(status, static_cast<size_t>(servers));
  return view.ok() && view->servers[static_cast<size_t>(server)].state != ServerState::kWhole;
}

void Invariants::check_holds(const Json& job, const Json& after, const ServersView& view,
                             size_t server) {
  if (view.servers[server].state != ServerState::kWhole) return;
  const int64_t rank = int_or(member(job, "spec"), "nodes", 1) + static_cast<int64_t>(server);
  const Node* node = node_of_rank(job, after, rank);
  if (node == nullptr || node->state.workers.empty()) return;
  const bool runs = node->answers() && node->state.workers.front().running;
  const int64_t copies = node->assignment.parameter_servers->copies;
  if (!runs ||
      std::ranges::includes(node->served.holds, chains_of(server, view.servers.size(), copies))) {
    return;
  }
  chance_.violate("servers", "a server counts that lacks what it should hold");
}

}  // namespace lockstep::sim
