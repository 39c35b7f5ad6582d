// Invariants of jobs with servers.
#include <algorithm>

#include "common/api/server_places.h"
#include "common/api/servers_view.h"
#include "controller/plan/members.h"
#include "tests/controller/sim/invariants.h"

namespace lockstep::sim {
namespace {

Result<ServersView> view_in(const Json& job, const Json& status) {
  const int64_t ranks = int_or(member(status, "rendezvous"), "worldSize", 0);
  const int64_t servers = ranks - int_or(member(job, "spec"), "nodes", 1);
  return servers_view_from_text(string_or(status, "serversView", ""),
                                static_cast<size_t>(std::max<int64_t>(servers, 0)));
}

}  // namespace

// Views are numbered without gaps within a round, and end with it. Each range has a primary that
// holds it: a server that counts has all that it should, unless it has just died.
void Invariants::check_servers(const Json& job, const Json& after) {
  const Json& before = member(job, "status");
  const std::string text = string_or(after, "serversView", "");
  const int64_t copies = int_or(member(member(job, "spec"), "parameterServers"), "copies", 0);
  if (text.empty() || member(after, "rendezvous").is_null()) return;
  const Result<ServersView> now = view_in(job, after);
  if (!now.ok()) return chance_.violate("servers", "status has no view: " + text);
  if (int_or(before, "round", 0) != int_or(after, "round", 0)) {
    if (now->number != 1) chance_.violate("servers", "a view outlived its round");
    return;
  }
  const Result<ServersView> was = view_in(job, before);
  if (text == string_or(before, "serversView", "") || !was.ok()) return;
  chance_.count(Transition::kServersView);
  const size_t counted = counted_servers(*now);
  if (counted > counted_servers(*was)) chance_.count(Transition::kServerAdded);
  if (counted < counted_servers(*was)) chance_.count(Transition::kServerRemoved);
  const bool is_next = now->number == was->number + 1;
  if (!is_next) chance_.violate("servers", "a view does not follow the one before: " + text);
  if (!holds_everything(*now, copies)) {
    chance_.violate("servers", "a range has no primary in view " + text);
  }
  check_new_workers(job, after, *now);
  const std::vector<int64_t> members = plan::members_from_text(string_or(after, "members", ""));
  for (size_t server = 0; server < now->servers.size(); ++server) {
    check_holds(job, after, *now, server);
    const std::optional<ServerMove>& move = now->servers[server].move;
    const bool is_filled = move && now->servers[server].state == ServerState::kWhole &&
                           server < was->servers.size() && !was->servers[server].is_new &&
                           was->servers[server].state != ServerState::kWhole;
    if (is_filled) chance_.count(Transition::kServerMoved);
    if (now->servers[server].state == ServerState::kLeft) continue;
    const auto node = static_cast<size_t>(int_or(member(job, "spec"), "nodes", 1)) + server;
    if (members.size() <= node || (move && move->to.incarnation != members[node])) {
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
  const int64_t server = node - int_or(member(job, "spec"), "nodes", 1);
  if (member(member(job, "spec"), "parameterServers").is_null() || server < 0) return false;
  const Result<ServersView> view = view_in(job, status);
  return view.ok() && server < std::ssize(view->servers) &&
         !is_holding(view->servers[static_cast<size_t>(server)].state);
}

bool Invariants::is_yet_to_be_added(const Json& job, const Json& status, int64_t node) {
  const Result<ServersView> view = view_in(job, status);
  const int64_t server = node - int_or(member(job, "spec"), "nodes", 1);
  if (!view.ok() || view->places == 0 || server < 0) return false;
  return server >= std::ssize(view->servers) ||
         view->servers[static_cast<size_t>(server)].state == ServerState::kLeft;
}

void Invariants::check_holds(const Json& job, const Json& after, const ServersView& view,
                             size_t server) {
  if (!is_holding(view.servers[server].state)) return;
  const int64_t rank = int_or(member(job, "spec"), "nodes", 1) + static_cast<int64_t>(server);
  const Node* node = node_of_rank(job, after, rank);
  if (node == nullptr || node->state.workers.empty()) return;
  const bool runs = node->answers() && node->state.workers.front().running;
  const int64_t copies = node->assignment.parameter_servers->copies;
  if (!runs || std::ranges::includes(node->served.holds, places_held(view, server, copies))) return;
  chance_.violate("servers", "a server counts that lacks what it should hold");
}

}  // namespace lockstep::sim
