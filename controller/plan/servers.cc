#include "controller/plan/servers.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "common/api/server_places.h"
#include "common/api/worker_config.h"
#include "controller/plan/conditions.h"
#include "controller/plan/damage.h"
#include "controller/plan/server_round.h"

namespace lockstep::plan {
namespace {

constexpr char kGoesOnWithCopies[] = "training goes on with the copies of what is lost";
constexpr char kTakesUp[] = "training goes on, and its next process takes up where it was";

// Returns the number of servers with which the round began.
int64_t servers_of_world(const Pass& pass) {
  return pass.status.rendezvous->worldSize - pass.spec().nodes;
}

// Returns the view in status; nullopt if it is not of the round's servers and workers, since the
// spec has others by now, or somebody else has written it.
std::optional<ServersView> known_view(const Pass& pass) {
  constexpr auto kMost = static_cast<int64_t>(kServersInViewMax);
  const bool can_be = servers_of_world(pass) >= 1 && servers_of_world(pass) <= kMost &&
                      std::ssize(pass.current) >= pass.spec().nodes;
  if (!can_be) return std::nullopt;
  Result<ServersView> view =
      servers_view_from_text(pass.status.serversView, static_cast<size_t>(servers_of_world(pass)));
  if (!view.ok()) return std::nullopt;
  const bool are_workers =
      view->workers.empty() || view->workers.rbegin()->first < pass.spec().nodes;
  return are_workers ? std::optional(*std::move(view)) : std::nullopt;
}

bool is_among(const std::vector<int64_t>& nodes, int64_t node) {
  return std::ranges::find(nodes, node) != nodes.end();
}

// Whether a process that exits so tells of another one's end.
bool tells_of_others(int64_t exit_code) {
  return exit_code == kExitPeerLost || exit_code == kExitPeerHung || exit_code == kExitStopped;
}

// Whether a worker's process that failed can be followed by one that goes on where it was: it has
// trained. So one that could not go on, and fails again, ends the round.
bool may_return(const AgentState& state) {
  if (state.workers.size() != 1 || is_being_stopped(state)) return false;
  const WorkerState& worker = state.workers.front();
  return worker.phase >= WorkerPhase::kTraining && !tells_of_others(worker.exit_code);
}

// Whether the node is of a worker that its agent, or that of its next pod, is about to start anew.
bool is_away(const Pass& pass, const ServersView& view, int64_t node) {
  const PodView* pod = pass.current[static_cast<size_t>(node)];
  if (awaits_pod(view, node)) return true;
  const int64_t since = worker_since(view, node);
  if (since == 1 || pod == nullptr || pod->terminating) return false;
  const AgentState* state = pass.current_report(pod);
  if (state == nullptr) return view.worker_moves.contains(node);
  return state->servers_started < since && !is_being_stopped(*state);
}

// Whether all workers but these train, are done, or can be started anew.
bool all_workers_train(const Pass& pass, const std::vector<int64_t>& but) {
  const ServersView view = servers_view(pass);
  const auto workers = std::span(pass.current).first(static_cast<size_t>(pass.spec().nodes));
  int64_t node = -1;
  return std::ranges::all_of(workers, [&](const PodView* pod) {
    ++node;
    if (is_among(but, node) || is_away(pass, view, node)) return true;
    const AgentState* state = pass.current_report(pod);
    if (state == nullptr) return false;
    if (is_known_to_be_gone(pass, *pod, *state) || may_return(*state)) return true;
    return std::ranges::all_of(state->workers, [](const WorkerState& worker) {
      return worker.running || worker.exit_code == 0;
    });
  });
}

bool is_lifeless(const Pass& pass, size_t server) {
  const AgentState* state = pass.current_report(pod_of_server(pass, server));
  return state != nullptr && state->workers.size() == 1 && state->workers.front().running &&
         state->workers.front().is_lifeless;
}

// Returns where the worker was when the round began; nullopt if its pod of then is unseen.
std::optional<ServerPlace> first_place_of_worker(const Pass& pass, const ServersView& view,
                                                 int64_t node) {
  const auto move = view.worker_moves.find(node);
  if (move != view.worker_moves.end()) return move->second.from;
  const PodView* pod = pass.current[static_cast<size_t>(node)];
  if (pod == nullptr || pod->ip.empty()) return std::nullopt;
  return ServerPlace{.incarnation = pod->incarnation, .host = pod->ip};
}

// Returns the view without these pods; nullopt if the place of one is unknown, or all are of
// servers that are still to be added.
std::optional<ServersView> view_without_pods(const Pass& pass, const std::vector<int64_t>& lost) {
  const ServersView view = servers_view(pass);
  std::map<size_t, ServerMove> servers;
  std::map<int64_t, ServerMove> workers;
  for (const int64_t node : lost) {
    const std::optional<size_t> server = server_of_node(pass, view, node);
    const bool is_added = server && view.servers[*server].state != ServerState::kLeft;
    if (!is_added && node >= pass.spec().nodes) continue;
    const std::optional<ServerPlace> first =
        server ? first_place(pass, view, *server) : first_place_of_worker(pass, view, node);
    if (!first) return std::nullopt;
    const int64_t next = pass.members[static_cast<size_t>(node)] + 1;
    ServerMove& move = server ? servers[*server] : workers[node];
    move = {.from = *first, .to = {.incarnation = next, .host = ""}};
  }
  if (servers.empty() && workers.empty()) return std::nullopt;
  return moved_view(view, servers, workers);
}

// Whether the pod's server has asked all ranks to leave, or is about to, because its pod is being
// stopped. One that runs nothing of the round asks nobody.
bool asks_to_stop(const Pass& pass, const PodView& pod) {
  if (pod.exit_code == kExitStopped) return true;
  const AgentState* state = pass.current_report(&pod);
  if (state != nullptr && is_being_stopped(*state)) return true;
  const bool runs_nothing = state != nullptr
                                ? std::ranges::none_of(state->workers, &WorkerState::running)
                                : pod.phase != "Running" || pass.last_report(&pod) != nullptr;
  return pod.terminating && !runs_nothing;
}

bool any_asks_to_stop(const Pass& pass, const std::vector<int64_t>& nodes) {
  return std::ranges::any_of(pass.pods_of(nodes), [&](const PodView* pod) {
    return pod != nullptr && asks_to_stop(pass, *pod);
  });
}

// Whether the node's worker, whose pod was lost, can take up where it was: it had trained, or had
// been started anew. Its process must have ended for certain, or else two of them might push.
bool may_take_up(const Pass& pass, const ServersView& view, int64_t node) {
  const PodView* pod = pass.current[static_cast<size_t>(node)];
  if (pod == nullptr || !(pod->finished() || pod->exit_code)) return false;
  const AgentState* state = pass.current_report(pod);
  const bool had_trained = state == nullptr || state->workers.size() != 1 ||
                           state->workers.front().phase >= WorkerPhase::kTraining;
  return view.places > 0 && (had_trained || view.workers.contains(node));
}

bool is_held(const Pass& pass, const ServersView& view) {
  return fits(view) && view.workers.size() <= kWorkersInViewMax &&
         holds_everything(view, pass.spec().parameterServers->copies);
}

// Whether the worker that failed can be started anew, as its agent and all others know.
bool can_return(const Pass& pass, const FailureStatus& failure) {
  const AgentState* state =
      pass.current_report(pass.current[static_cast<size_t>(failure.nodeIndex)]);
  if (state == nullptr || !may_return(*state)) return false;
  const bool is_its_own = failure.reason != kSuspected && failure.exitCode >= 0;
  const ServersView next = view_with_new_worker(servers_view(pass), failure.rank);
  return is_its_own && all_speak(pass, kProtocolWithNewWorkers, {}) && fits(next) &&
         next.workers.size() <= kWorkersInViewMax;
}

// Whether the node's worker had been lost, and had not been started anew yet when its pod was lost.
bool was_to_start_anew(const Pass& pass, const ServersView& view, int64_t node) {
  const AgentState* state = pass.current_report(pass.current[static_cast<size_t>(node)]);
  const int64_t since = worker_since(view, node);
  return since > 1 && (state == nullptr || state->servers_started < since);
}

// Returns the nodes of the round without those of servers that are gone or join.
std::vector<int64_t> nodes_with_servers_that_count(const Pass& pass) {
  std::vector<int64_t> nodes = pass.round_nodes;
  if (!has_views(pass) || pass.status.serversView.empty()) return nodes;
  const ServersView view = servers_view(pass);
  std::erase_if(nodes, [&](int64_t node) {
    const std::optional<size_t> server = server_of_node(pass, view, node);
    return server && !is_holding(view.servers[*server].state);
  });
  return nodes;
}

}  // namespace

std::optional<size_t> server_of_node(const Pass& pass, const ServersView& view,
                                     int64_t node_index) {
  const int64_t place = node_index - pass.spec().nodes;
  const bool is_server = place >= 0 && place < std::ssize(view.servers);
  return is_server ? std::optional(static_cast<size_t>(place)) : std::nullopt;
}

size_t node_of_server(const Pass& pass, size_t server) {
  return static_cast<size_t>(pass.spec().nodes) + server;
}

const PodView* pod_of_server(const Pass& pass, size_t server) {
  const size_t node = node_of_server(pass, server);
  return node < pass.current.size() ? pass.current[node] : nullptr;
}

std::optional<ServerPlace> first_place(const Pass& pass, const ServersView& view, size_t server) {
  const std::optional<ServerMove>& move = view.servers[server].move;
  if (move) return move->from;
  const PodView* pod = pod_of_server(pass, server);
  if (pod == nullptr || pod->ip.empty()) return std::nullopt;
  return ServerPlace{.incarnation = pod->incarnation, .host = pod->ip};
}

bool awaits_pod(const ServerStanding& server) {
  return server.state == ServerState::kGone && server.move && server.move->to.host.empty();
}

bool awaits_pod(const ServersView& view, int64_t node) {
  const auto move = view.worker_moves.find(node);
  return move != view.worker_moves.end() && move->second.to.host.empty();
}

bool all_speak(const Pass& pass, int64_t protocol, const std::vector<int64_t>& lost) {
  return std::ranges::all_of(pass.in_round(), [&](const PodView* pod) {
    if (pod == nullptr || is_among(lost, pod->node_index)) return true;
    const AgentState* state = pass.last_report(pod);
    return state != nullptr && state->protocol >= protocol;
  });
}

bool may_go_on(const Pass& pass, const std::vector<int64_t>& lost) {
  if (!has_views(pass) || is_true(pass.status, kDraining)) return false;
  const bool has_trained = is_true(pass.status, kRunning) || servers_view(pass).number > 1;
  return has_trained && all_workers_train(pass, lost);
}

bool fits(const ServersView& view) {
  constexpr size_t kGrowthMax = 64;  // of a server's text: the address of its pod, longer numbers
  const auto coming =
      static_cast<size_t>(std::ranges::count_if(view.servers, [](const ServerStanding& server) {
        return server.state != ServerState::kWhole;
      }));
  return text_of(view).size() + kGrowthMax * (coming + 1) <= kServersViewBytesMax;
}

// Without places, members that the spec has added or taken away make another round.
bool has_views(const Pass& pass) {
  const bool may_have = pass.formed() && pass.spec().parameterServers && pass.status.rendezvous &&
                        processes_per_node(pass.spec()) == 1;
  if (!may_have || !known_view(pass)) return false;
  return has_places(pass) || std::ssize(pass.current) == pass.status.rendezvous->worldSize;
}

ServersView servers_view(const Pass& pass) {
  return *known_view(pass);
}

std::vector<int64_t> counted_nodes(const Pass& pass) {
  std::vector<int64_t> nodes = nodes_with_servers_that_count(pass);
  if (!has_views(pass) || pass.status.serversView.empty()) return nodes;
  const ServersView view = servers_view(pass);
  std::erase_if(
      nodes, [&](int64_t node) { return node < pass.spec().nodes && is_away(pass, view, node); });
  return nodes;
}

std::vector<const PodView*> counted_pods(const Pass& pass) {
  const std::vector<int64_t> nodes = counted_nodes(pass);
  const auto pods = pass.pods_of(nodes);
  return {pods.begin(), pods.end()};
}

std::vector<const PodView*> pods_that_must_end(const Pass& pass) {
  const std::vector<int64_t> nodes = nodes_with_servers_that_count(pass);
  const auto pods = pass.pods_of(nodes);
  return {pods.begin(), pods.end()};
}

std::map<int64_t, ServerPlace> moved_places(const Pass& pass) {
  std::map<int64_t, ServerPlace> places;
  if (!has_views(pass) || pass.status.serversView.empty()) return places;
  int64_t node = pass.spec().nodes;
  const ServersView view = servers_view(pass);
  for (const ServerStanding& server : view.servers) {
    if (server.move) places[node] = server.move->from;
    ++node;
  }
  for (const auto& [rank, move] : view.worker_moves) places[rank] = move.from;
  return places;
}

std::set<int64_t> nodes_without_pods(const Pass& pass) {
  std::set<int64_t> nodes;
  if (!has_views(pass) || pass.status.serversView.empty()) return nodes;
  int64_t node = pass.spec().nodes;
  const ServersView view = servers_view(pass);
  for (const ServerStanding& server : view.servers) {
    if (awaits_pod(server)) nodes.insert(node);
    ++node;
  }
  for (const auto& [rank, move] : view.worker_moves) {
    if (awaits_pod(view, rank)) nodes.insert(rank);
  }
  return nodes;
}

bool is_known_to_be_gone(const Pass& pass, const PodView& pod, const AgentState& state) {
  if (!has_views(pass)) return false;
  const ServersView view = servers_view(pass);
  const std::optional<size_t> server = server_of_node(pass, view, pod.node_index);
  if (!server) {
    return worker_since(view, pod.node_index) > std::max<int64_t>(state.servers_started, 1);
  }
  const ServerStanding standing = view.servers[*server];
  if (standing.state == ServerState::kLeft) return true;
  return standing.state == ServerState::kGone && state.servers_started < standing.since;
}

std::optional<FailureStatus> lifeless_server(const Pass& pass) {
  if (!has_views(pass)) return std::nullopt;
  const size_t servers = servers_view(pass).servers.size();
  for (size_t server = 0; server < servers; ++server) {
    if (!is_lifeless(pass, server)) continue;
    const PodView& pod = *pod_of_server(pass, server);
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
  if (failure.rank < 0 || !has_views(pass)) return false;
  const ServersView view = servers_view(pass);
  const std::optional<size_t> server = server_of_node(pass, view, failure.nodeIndex);
  if (!server) return may_go_on(pass) && can_return(pass, failure);
  const bool has_failed = failure.reason != kSuspected && failure.exitCode >= 0;
  if (!may_go_on(pass) || !(has_failed || is_lifeless(pass, *server))) return false;
  return is_held(pass, next_view(view, *server, ServerState::kGone));
}

const char* lose_process(Pass& pass, const FailureStatus& failure) {
  const ServersView view = servers_view(pass);
  if (const auto server = server_of_node(pass, view, failure.nodeIndex)) {
    pass.status.serversView = text_of(next_view(view, *server, ServerState::kGone));
    return kGoesOnWithCopies;
  }
  pass.status.serversView = text_of(view_with_new_worker(view, failure.rank));
  return kTakesUp;
}

bool misses_worker(const Pass& pass) {
  if (!has_views(pass) || pass.status.serversView.empty()) return false;
  const ServersView view = servers_view(pass);
  return std::ranges::any_of(view.workers, [&](const auto& worker) {
    return worker.first < pass.spec().nodes && is_away(pass, view, worker.first);
  });
}

bool has_new_workers(const Pass& pass) {
  return has_views(pass) && !servers_view(pass).workers.empty();
}

bool can_go_on_without_pods(const Pass& pass, const std::vector<int64_t>& lost) {
  if (lost.empty() || !may_go_on(pass, lost)) return false;
  const ServersView view = servers_view(pass);
  const auto is_worker = [&](int64_t node) { return node < pass.spec().nodes; };
  const bool has_workers = std::ranges::any_of(lost, is_worker);
  const int64_t protocol = has_workers ? kProtocolWithPlaces : kProtocolWithMoves;
  if (any_asks_to_stop(pass, lost) || !all_speak(pass, protocol, lost)) return false;
  const bool can_return = std::ranges::all_of(
      lost, [&](int64_t node) { return !is_worker(node) || may_take_up(pass, view, node); });
  if (!can_return) return false;
  const std::optional<ServersView> without = view_without_pods(pass, lost);
  return without && is_held(pass, *without);
}

// A pod that is lost after one of its node was lost is a further failure.
bool were_gone_before(const Pass& pass, const std::vector<int64_t>& lost) {
  if (!has_views(pass) || pass.status.serversView.empty()) return false;
  const ServersView view = servers_view(pass);
  const bool goes_on = can_go_on_without_pods(pass, lost);
  return std::ranges::all_of(lost, [&](int64_t node) {
    const std::optional<size_t> server = server_of_node(pass, view, node);
    const bool was_gone = server ? view.servers[*server].state == ServerState::kGone
                                 : goes_on && was_to_start_anew(pass, view, node);
    if (!was_gone) return false;
    const auto newest = std::ranges::find_if(
        pass.status.failures.rbegin(), pass.status.failures.rend(),
        [&](const FailureStatus& failure) { return failure.nodeIndex == node; });
    return newest != pass.status.failures.rend() && newest->round == pass.status.round &&
           newest->rank >= 0;
  });
}

const char* lose_pods(Pass& pass, const std::vector<int64_t>& lost) {
  const std::optional<ServersView> without = view_without_pods(pass, lost);
  if (without) pass.status.serversView = text_of(*without);
  const bool has_workers =
      std::ranges::any_of(lost, [&](int64_t node) { return node < pass.spec().nodes; });
  return has_workers ? kTakesUp : kGoesOnWithCopies;
}

}  // namespace lockstep::plan
