// Jobs with servers: what the processes of servers hold, the views that all follow, and processes
// that are started anew.
#include <algorithm>

#include "common/api/servers_view.h"
#include "common/api/worker_config.h"
#include "tests/controller/sim/nodes.h"

namespace lockstep::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kFollowMax = milliseconds(400);  // until a process has the view of its agent
constexpr Duration kServesAfter = milliseconds(300);
constexpr Duration kFillMax = seconds(8);
// How long workers wait for a view without a server that is gone.
constexpr Duration kPatience = seconds(120);

size_t servers_of(const Assignment& assignment) {
  return static_cast<size_t>(assignment.parameter_servers->nodes);
}

// Returns the server of this rank of a round with servers; nullopt for a worker.
std::optional<size_t> server_of(const Node& node) {
  const auto servers = static_cast<int64_t>(servers_of(node.assignment));
  const int64_t first = node.assignment.world.world_size() - servers;
  const int64_t rank = node.state.workers.front().rank;
  return rank < first ? std::nullopt : std::optional(static_cast<size_t>(rank - first));
}

// Whether a worker that ends so tells of another one's end.
bool is_of_others(int64_t exit_code) {
  return exit_code == kExitPeerLost || exit_code == kExitPeerHung || exit_code == kExitStopped;
}

// Returns the server of the chain to which the one that joins is added: the one that has been whole
// for the shortest time; nullopt if it does not join this chain.
std::optional<size_t> filler_of(const ServersView& view, size_t chain, int64_t copies) {
  const size_t count = view.servers.size();
  std::optional<size_t> last;
  bool joins = false;
  for (size_t i = 0; i <= static_cast<size_t>(copies); ++i) {
    const size_t server = (chain + i) % count;
    const ServerStanding& standing = view.servers[server];
    joins |= standing.state == ServerState::kJoining;
    if (standing.state != ServerState::kWhole) continue;
    if (!last || standing.since >= view.servers[*last].since) last = server;
  }
  return joins ? last : std::nullopt;
}

}  // namespace

bool has_copies(const Assignment& assignment) {
  return assignment.parameter_servers && assignment.parameter_servers->copies > 0;
}

bool has_servers(const Assignment& assignment) {
  return assignment.parameter_servers.has_value();
}

std::set<size_t> chains_of(size_t server, size_t servers, int64_t copies) {
  std::set<size_t> chains;
  for (size_t i = 0; i <= static_cast<size_t>(copies); ++i) {
    chains.insert((server + servers - i) % servers);
  }
  return chains;
}

int64_t incarnation_of(int64_t node_index, const Assignment& assignment) {
  const WorldAssignment& world = assignment.world;
  const auto place = static_cast<size_t>(*place_of(world, node_index));
  const Result<ServersView> view =
      servers_view_from_text(assignment.servers_view, server_count(world));
  const size_t first = world.members.size() - server_count(world);
  if (has_copies(assignment) && view.ok() && place >= first) {
    const std::optional<ServerMove>& move = view->servers[place - first].move;
    if (move) return move->to.incarnation;
  }
  return world.members[place].incarnation;
}

bool has_moved_server(const Assignment& assignment) {
  const Result<ServersView> view = servers_view_from_text(assignment.servers_view);
  return view.ok() && has_moved_server(*view);
}

bool has_new_worker(const Assignment& assignment) {
  const Result<ServersView> view = servers_view_from_text(assignment.servers_view);
  return view.ok() && !view->workers.empty();
}

// In the first view each server has what it should. Returns whether the node tells of itself
// already.
bool Nodes::begin_serving(Node& node) {
  node.served = {.process = node.served.process + 1};
  node.state.servers_view = node.state.servers_started = 0;
  if (!has_servers(node.assignment)) return false;
  const size_t count = servers_of(node.assignment);
  node.served.view = *servers_view_from_text(node.assignment.servers_view, count);
  const int64_t number = node.served.view.number;
  node.state.servers_view = node.state.servers_started = number;
  node.state.workers.front().servers_view = number;
  const std::optional<size_t> server = server_of(node);
  if (server && servers_changed_in(node.served.view) == 1) {
    node.served.holds = chains_of(*server, count, node.assignment.parameter_servers->copies);
  }
  const bool is_moved = server && node.served.view.servers[*server].move;
  if (is_moved) serve_anew(node, ServersView(node.served.view));
  return is_moved;
}

// Whether another pod took the place of this one within the round.
bool Nodes::is_superseded(const Node& node) const {
  return std::ranges::any_of(nodes_, [&](const auto& entry) {
    const Node& other = *entry.second;
    return other.job_uid == node.job_uid && other.index == node.index &&
           other.incarnation > node.incarnation && other.state.hash == node.state.hash;
  });
}

void Nodes::take_view(Node& node, const Assignment& assignment) {
  if (!has_servers(node.assignment)) return;
  const Result<ServersView> view =
      servers_view_from_text(assignment.servers_view, servers_of(node.assignment));
  if (!view.ok() || view->number < node.state.servers_view) return;
  std::string& known = views_[{node.state.hash, view->number}];
  if (known.empty()) known = text_of(*view);
  if (known != text_of(*view)) chance_.violate("servers", "two views have the same number");
  if (view->number == node.state.servers_view) return;
  node.assignment.servers_view = assignment.servers_view;
  node.state.servers_view = view->number;
  const std::optional<size_t> server = server_of(node);
  const int64_t started = node.state.servers_started;
  const bool begins_anew = server ? view->servers[*server].state == ServerState::kGone &&
                                        view->servers[*server].since > started
                                  : worker_since(*view, node.state.workers.front().rank) > started;
  if (begins_anew) {
    serve_anew(node, *view);
  } else {
    follow_later(node, *view);
  }
  changed(node);
}

// Its agent kills what runs, and starts it anew. A worker goes on after the step that it was at.
void Nodes::serve_anew(Node& node, const ServersView& view) {
  if (node.is_stopping) return;
  WorkerState worker{.rank = node.state.workers.front().rank, .running = true};
  worker.step = node.state.workers.front().step;
  node.served = {.process = node.served.process + 1, .view = view};
  node.state.servers_started = view.number;
  node.state.phase = "Running";
  node.state.workers = {worker};
  node.hung_at.reset();
  chance_.timers.after(chance_.between(milliseconds(0), kServesAfter),
                       [this, uid = node.uid, process = node.served.process] {
                         Node* same = serving(uid, process);
                         if (same == nullptr) return;
                         WorkerState& serves = same->state.workers.front();
                         serves.phase = WorkerPhase::kTraining;
                         serves.servers_view = same->served.view.number;
                         changed(*same);
                         schedule_advance(same->job_uid, kFollowMax);
                       });
}

// Returns the node if this process of it still runs.
Node* Nodes::serving(const std::string& uid, int64_t process) {
  const auto found = nodes_.find(uid);
  if (found == nodes_.end()) return nullptr;
  Node& node = *found->second;
  const bool is_same = node.served.process == process && !node.state.workers.empty();
  return is_same && node.answers() && node.state.workers.front().running ? &node : nullptr;
}

void Nodes::follow_later(const Node& node, const ServersView& view) {
  chance_.timers.after(chance_.between(milliseconds(0), kFollowMax),
                       [this, uid = node.uid, process = node.served.process, view] {
                         Node* same = serving(uid, process);
                         if (same != nullptr) follow(*same, view);
                       });
}

void Nodes::follow(Node& node, const ServersView& view) {
  if (view.number <= node.served.view.number) return;
  const ServersView before = std::exchange(node.served.view, view);
  node.served.given.clear();
  WorkerState& process = node.state.workers.front();
  process.servers_view = view.number;
  process.is_filling = false;
  if (const auto server = server_of(node)) {
    check_follower(node, *server, before);
    const int64_t copies = node.assignment.parameter_servers->copies;
    for (const size_t chain : chains_of(*server, view.servers.size(), copies)) {
      if (filler_of(view, chain, copies) != *server) continue;
      process.is_filling = true;
      fill_later(node, chain);
    }
  }
  changed(node);
  schedule_advance(node.job_uid, kFollowMax);
}

// A server that misses that another one was started anew would not give it what it lacks.
void Nodes::check_follower(const Node& node, size_t server, const ServersView& before) {
  const ServersView& view = node.served.view;
  const int64_t copies = node.assignment.parameter_servers->copies;
  if (view.servers[server].state == ServerState::kWhole &&
      !std::ranges::includes(node.served.holds, chains_of(server, view.servers.size(), copies))) {
    chance_.violate("servers", "a server counts that lacks what it should hold");
  }
  for (size_t i = 0; i < view.servers.size(); ++i) {
    const ServerStanding& was = before.servers[i];
    const ServerStanding& is = view.servers[i];
    if (i == server || was == is || is.state == ServerState::kGone) continue;
    const bool joins = was.state == ServerState::kGone && is.state == ServerState::kJoining;
    const bool is_filled = was.state == ServerState::kJoining && is.state == ServerState::kWhole;
    if (!joins && !is_filled) {
      chance_.violate("servers", "a server missed that another one was gone, or joined");
    }
  }
}

void Nodes::fill_later(const Node& node, size_t chain) {
  chance_.timers.after(chance_.between(milliseconds(0), kFillMax),
                       [this, uid = node.uid, process = node.served.process, chain,
                        number = node.served.view.number] {
                         Node* same = serving(uid, process);
                         if (same == nullptr || same->served.view.number != number) return;
                         fill(*same, chain);
                       });
}

// The server that joins takes what it is sent once it follows the view, too.
void Nodes::fill(Node& node, size_t chain) {
  const size_t joining = joining_server(node.served.view);
  for (auto& [uid, peer] : nodes_) {
    const bool is_meant = peer->state.hash == node.state.hash && peer->job_uid == node.job_uid &&
                          !peer->state.workers.empty() && server_of(*peer) == joining &&
                          !is_superseded(*peer);
    if (!is_meant || !peer->answers() || !peer->state.workers.front().running) continue;
    if (peer->served.view.number < node.served.view.number) continue;
    peer->served.holds.insert(chain);
    node.served.given.insert(chain);
  }
  const int64_t copies = node.assignment.parameter_servers->copies;
  const std::set<size_t>& done = node.served.given;
  if (!done.contains(chain)) return fill_later(node, chain);
  const std::optional<size_t> server = server_of(node);
  for (size_t other = 0; other < node.served.view.servers.size(); ++other) {
    if (filler_of(node.served.view, other, copies) == server && !done.contains(other)) return;
  }
  node.state.workers.front().is_filling = false;
  changed(node);
}

// Returns the ranks of servers without which the round goes on, as one of its workers knows.
std::set<int64_t> Nodes::spared_ranks(const Round& round) {
  std::set<int64_t> ranks;
  if (round.empty() || !has_copies(round.front()->assignment)) return ranks;
  const WorldAssignment& world = round.front()->assignment.world;
  for (const Node* node : round) {
    if (server_of(*node)) continue;
    int64_t rank = world.world_size() - std::ssize(node->served.view.servers);
    for (const ServerStanding& server : node->served.view.servers) {
      if (server.state != ServerState::kWhole) ranks.insert(rank);
      ++rank;
    }
  }
  return ranks;
}

// Returns whether only processes are missing that may be started anew, and pods of servers with
// copies, and workers still hope to go on.
bool Nodes::waits_for_view(const Round& round) {
  const Assignment& assignment = round.front()->assignment;
  if (!has_servers(assignment)) return false;
  const TimePoint now = chance_.clock.now();
  const TimePoint since = missed_since_.try_emplace(assignment.hash, now).first->second;
  if (now - since >= kPatience) return false;
  int64_t workers = 0;
  for (const Node* node : round) {
    const WorkerState& worker = node->state.workers.front();
    if (server_of(*node)) {
      if (!worker.running && worker.exit_code != 0 && !has_copies(assignment)) return false;
      continue;
    }
    if (!worker.running && is_of_others(worker.exit_code)) return false;
    ++workers;
  }
  const auto servers = static_cast<int64_t>(servers_of(assignment));
  if (!has_copies(assignment) && std::ssize(round) < assignment.world.world_size()) return false;
  return workers == assignment.world.world_size() - servers;
}

}  // namespace lockstep::sim
