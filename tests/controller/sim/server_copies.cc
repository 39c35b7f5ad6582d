// Jobs with servers: what the processes of servers hold, the views that all follow, and processes
// that are started anew.
#include <algorithm>

#include "common/api/server_places.h"
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

int64_t first_server_rank(const Assignment& assignment) {
  return assignment.world.world_size() - static_cast<int64_t>(server_count(assignment.world));
}

// Returns the server of this rank of a round with servers; nullopt for a worker.
std::optional<size_t> server_of(const Node& node) {
  const int64_t first = first_server_rank(node.assignment);
  const int64_t rank = node.state.workers.front().rank;
  return rank < first ? std::nullopt : std::optional(static_cast<size_t>(rank - first));
}

// Whether a worker that ends so tells of another one's end.
bool is_of_others(int64_t exit_code) {
  return exit_code == kExitPeerLost || exit_code == kExitPeerHung || exit_code == kExitStopped;
}

// Whether the place is being filled by this server, the last one of its chain.
bool is_filler(const PlaceHolders& place, std::optional<size_t> server) {
  return place.joining && server && place.chain.back() == *server;
}

// Whether processes wait for a view in which the round goes on without a server.
bool follows_views(const Assignment& assignment) {
  const Result<ServersView> view = servers_view_from_text(assignment.servers_view);
  return has_copies(assignment) || (view.ok() && view->places > 0);
}

}  // namespace

bool has_copies(const Assignment& assignment) {
  return assignment.parameter_servers && assignment.parameter_servers->copies > 0;
}

bool has_servers(const Assignment& assignment) {
  return assignment.parameter_servers.has_value();
}

std::set<size_t> places_held(const ServersView& view, size_t server, int64_t copies) {
  std::set<size_t> places;
  const std::vector<PlaceHolders> all = holders_of_places(view, copies);
  for (size_t place = 0; place < all.size(); ++place) {
    if (std::ranges::find(all[place].chain, server) != all[place].chain.end()) places.insert(place);
  }
  return places;
}

int64_t incarnation_of(const Assignment& assignment) {
  const WorldAssignment& world = assignment.world;
  const auto place = static_cast<size_t>(place_in_round(assignment));
  const Result<ServersView> view =
      servers_view_from_text(assignment.servers_view, server_count(world));
  const size_t first = world.members.size() - server_count(world);
  if (has_servers(assignment) && view.ok() && place >= first) {
    const std::optional<ServerMove>& move = view->servers[place - first].move;
    if (move) return move->to.incarnation;
  }
  const auto rank = static_cast<int64_t>(place);
  if (view.ok() && view->worker_moves.contains(rank)) {
    return view->worker_moves.at(rank).to.incarnation;
  }
  return world.members[place].incarnation;
}

bool has_places(const Assignment& assignment) {
  const Result<ServersView> view = servers_view_from_text(assignment.servers_view);
  return view.ok() && view->places > 0;
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
  node.served.view =
      *servers_view_from_text(node.assignment.servers_view, server_count(node.assignment.world));
  const int64_t number = node.served.view.number;
  node.state.servers_view = node.state.servers_started = number;
  node.state.workers.front().servers_view = number;
  const std::optional<size_t> server = server_of(node);
  if (server && servers_changed_in(node.served.view) == 1) {
    node.served.holds =
        places_held(node.served.view, *server, node.assignment.parameter_servers->copies);
  }
  const bool is_moved =
      server ? node.served.view.servers[*server].move.has_value()
             : node.served.view.worker_moves.contains(node.state.workers.front().rank);
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
      servers_view_from_text(assignment.servers_view, server_count(node.assignment.world));
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
    const std::vector<PlaceHolders> places =
        holders_of_places(view, node.assignment.parameter_servers->copies);
    for (size_t place = 0; place < places.size(); ++place) {
      const std::vector<size_t>& chain = places[place].chain;
      if (std::ranges::find(chain, *server) == chain.end()) node.served.holds.erase(place);
      if (!is_filler(places[place], server)) continue;
      process.is_filling = true;
      fill_later(node, place);
    }
    if (view.servers[*server].state == ServerState::kLeft) end_after_leaving(node);
  }
  changed(node);
  schedule_advance(node.job_uid, kFollowMax);
}

// A server that misses that another one was started anew would not give it what it lacks. One that
// is gone gives nothing.
void Nodes::check_follower(const Node& node, size_t server, const ServersView& before) {
  const ServersView& view = node.served.view;
  const int64_t copies = node.assignment.parameter_servers->copies;
  if (is_holding(view.servers[server].state) &&
      !std::ranges::includes(node.served.holds, places_held(view, server, copies))) {
    chance_.violate("servers", "a server counts that lacks what it should hold");
  }
  if (view.servers[server].state == ServerState::kGone) return;
  for (size_t i = 0; i < view.servers.size(); ++i) {
    const ServerStanding was = i < before.servers.size() ? before.servers[i] : ServerStanding();
    const ServerStanding& is = view.servers[i];
    if (i == server || was == is || is.state == ServerState::kGone) continue;
    const bool leaves = was.state == ServerState::kWhole && is.state == ServerState::kLeaving;
    const bool is_given_up = was.is_new && was.state == ServerState::kGone;
    const bool has_left =
        (was.state == ServerState::kLeaving || is_given_up) && is.state == ServerState::kLeft;
    if (leaves || has_left) continue;
    const bool joins = was.state == ServerState::kGone && is.state == ServerState::kJoining;
    const bool is_filled = was.state == ServerState::kJoining && is.state == ServerState::kWhole;
    if (!joins && !is_filled) {
      chance_.violate("servers", "a server missed that another one was gone, or joined");
    }
  }
}

void Nodes::fill_later(const Node& node, size_t place) {
  chance_.timers.after(chance_.between(milliseconds(0), kFillMax),
                       [this, uid = node.uid, process = node.served.process, place,
                        number = node.served.view.number] {
                         Node* same = serving(uid, process);
                         if (same == nullptr || same->served.view.number != number) return;
                         fill(*same, place);
                       });
}

// The server that joins takes what it is sent once it follows the view, too.
void Nodes::fill(Node& node, size_t place) {
  const std::vector<PlaceHolders> places =
      holders_of_places(node.served.view, node.assignment.parameter_servers->copies);
  for (auto& [uid, peer] : nodes_) {
    const bool is_meant = peer->state.hash == node.state.hash && peer->job_uid == node.job_uid &&
                          !peer->state.workers.empty() &&
                          server_of(*peer) == places[place].joining && !is_superseded(*peer);
    if (!is_meant || !peer->answers() || !peer->state.workers.front().running) continue;
    if (peer->served.view.number < node.served.view.number) continue;
    peer->served.holds.insert(place);
    node.served.given.insert(place);
  }
  const std::set<size_t>& done = node.served.given;
  if (!done.contains(place)) return fill_later(node, place);
  for (size_t other = 0; other < places.size(); ++other) {
    if (is_filler(places[other], server_of(node)) && !done.contains(other)) return;
  }
  node.state.workers.front().is_filling = false;
  changed(node);
}

// Others hold what the server held.
void Nodes::end_after_leaving(Node& node) {
  WorkerState& process = node.state.workers.front();
  process.running = false;
  process.exit_code = 0;
  process.reason = "Completed";
  node.state.phase = "Completed";
}

// Returns the ranks of servers without which the round goes on, as one of its workers knows.
std::set<int64_t> Nodes::spared_ranks(const Round& round) {
  std::set<int64_t> ranks;
  if (round.empty() || !has_servers(round.front()->assignment)) return ranks;
  for (const Node* node : round) {
    if (server_of(*node)) continue;
    int64_t rank = first_server_rank(node->assignment);
    for (const ServerStanding& server : node->served.view.servers) {
      if (!is_holding(server.state)) ranks.insert(rank);
      ++rank;
    }
  }
  return ranks;
}

// Returns the number of ranks, with servers that were added since the round began, as one of its
// workers knows.
int64_t Nodes::ranks_of(const Round& round) {
  int64_t ranks = round.front()->assignment.world.world_size();
  if (!has_servers(round.front()->assignment)) return ranks;
  for (const Node* node : round) {
    if (server_of(*node)) continue;
    ranks = std::max(ranks,
                     first_server_rank(node->assignment) + std::ssize(node->served.view.servers));
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
      if (!worker.running && worker.exit_code != 0 && !follows_views(assignment)) return false;
      continue;
    }
    if (!worker.running && is_of_others(worker.exit_code)) return false;
    ++workers;
  }
  if (!follows_views(assignment) && std::ssize(round) < assignment.world.world_size()) return false;
  return workers == first_server_rank(assignment) || has_places(assignment);
}

}  // namespace lockstep::sim
