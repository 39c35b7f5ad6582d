#include "tests/agent/train/servers_manager.h"

#include <signal.h>

#include <algorithm>
#include <string>

namespace lockstep::train {

void ServersManager::give(const ServersView& view) {
  view_ = view;
  for (int64_t rank = 0; rank < world_.ranks(); ++rank) world_.give_view(rank, text_of(view_));
}

void ServersManager::kill(size_t server) {
  world_.kill(rank_of(server), SIGKILL);
  world_.wait_until(rank_of(server), [](const ProgressNumbers&) { return false; });
  decide(server, ServerState::kGone);
  world_.start_again(rank_of(server), text_of(view_));
}

void ServersManager::kill_worker(int64_t rank) {
  world_.kill(rank, SIGKILL);
  world_.wait_until(rank, [](const ProgressNumbers&) { return false; });
  give(view_with_new_worker(view_, rank));
  world_.start_again(rank, text_of(view_));
}

// Where the server is in the round's world.
ServerPlace ServersManager::first_place(size_t server) const {
  if (server >= shape_.servers) return {};
  return {.incarnation = 1, .host = world_.host(rank_of(server))};
}

std::string ServersManager::next_host() {
  return "127.0.200." + std::to_string(++pods_);
}

void ServersManager::lose_pod(size_t server) {
  const int64_t rank = rank_of(server);
  world_.kill(rank, SIGSTOP);
  const int64_t incarnation = 2 + pods_;
  const ServerPlace first = first_place(server);
  const ServerPlace none{.incarnation = incarnation, .host = ""};
  give(moved_view(view_, {{server, {.from = first, .to = none}}}));
  world_.kill(rank, SIGKILL);
  world_.wait_until(rank, [](const ProgressNumbers&) { return false; });
  const ServerPlace next{.incarnation = incarnation, .host = next_host()};
  give(moved_view(view_, {{server, {.from = {}, .to = next}}}));
  world_.start_again(rank, text_of(view_));
}

void ServersManager::add_server() {
  const int64_t rank = rank_of(counted_servers(view_));
  if (rank < world_.ranks()) world_.wait_until(rank, [](const ProgressNumbers&) { return false; });
  give(view_with_new_server(view_, {.incarnation = 2 + pods_, .host = next_host()}));
  world_.start_again(rank, text_of(view_));
}

void ServersManager::remove_server() {
  give(view_with_leaving_server(view_));
}

bool ServersManager::are_all_whole() const {
  return std::ranges::all_of(view_.servers, [](const ServerStanding& server) {
    return server.state == ServerState::kWhole || server.state == ServerState::kLeft;
  });
}

// All servers that live, and the new process, follow a view in which it is gone.
bool ServersManager::may_join(size_t server) const {
  for (size_t other = 0; other < view_.servers.size(); ++other) {
    const bool counts = other == server || !is_absent(view_.servers[other].state);
    const ProgressNumbers numbers = world_.progress(rank_of(other));
    if (counts && numbers.servers_view < view_.servers[server].since) return false;
  }
  return world_.progress(rank_of(server)).phase == WorkerPhase::kTraining;
}

bool ServersManager::is_filled() const {
  for (size_t other = 0; other < view_.servers.size(); ++other) {
    if (!is_holding(view_.servers[other].state)) continue;
    const ProgressNumbers numbers = world_.progress(rank_of(other));
    if (numbers.servers_view < view_.number || numbers.is_filling != 0) return false;
  }
  return true;
}

void ServersManager::tend() {
  if (const size_t joining = joining_server(view_); joining < view_.servers.size()) {
    if (is_filled()) decide(joining, ServerState::kWhole);
    return;
  }
  for (size_t server = 0; server < view_.servers.size(); ++server) {
    if (view_.servers[server].state != ServerState::kGone || !may_join(server)) continue;
    return decide(server, ServerState::kJoining);
  }
  // As the controller: those that take over what it holds must be there.
  const size_t last = counted_servers(view_) - 1;
  const bool is_any_gone = std::ranges::find(view_.servers, ServerState::kGone,
                                             &ServerStanding::state) != view_.servers.end();
  if (view_.servers[last].state != ServerState::kLeaving || is_any_gone || !is_filled()) return;
  give(view_without_last_server(view_, first_place(last), 2 + pods_));
}

}  // namespace lockstep::train
