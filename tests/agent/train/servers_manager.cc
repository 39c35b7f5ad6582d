#include "tests/agent/train/servers_manager.h"

#include <signal.h>

#include <algorithm>
#include <string>

namespace lockstep::train {

void ServersManager::give(const ServersView& view) {
  view_ = view;
  for (int64_t rank = 0; rank < world_.size(); ++rank) world_.give_view(rank, text_of(view_));
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

void ServersManager::lose_pod(size_t server) {
  const int64_t rank = rank_of(server);
  world_.kill(rank, SIGSTOP);
  const int64_t incarnation = 2 + pods_++;
  const ServerPlace first{.incarnation = 1, .host = world_.host(rank)};
  const ServerPlace none{.incarnation = incarnation, .host = ""};
  give(moved_view(view_, {{server, {.from = first, .to = none}}}));
  world_.kill(rank, SIGKILL);
  world_.wait_until(rank, [](const ProgressNumbers&) { return false; });
  const std::string host = "127.0.200." + std::to_string(incarnation);
  const ServerPlace next{.incarnation = incarnation, .host = host};
  give(moved_view(view_, {{server, {.from = {}, .to = next}}}));
  world_.start_again(rank, text_of(view_));
}

bool ServersManager::are_all_whole() const {
  return std::ranges::all_of(view_.servers, [](const ServerStanding& server) {
    return server.state == ServerState::kWhole;
  });
}

// All servers that live, and the new process, follow a view in which it is gone.
bool ServersManager::may_join(size_t server) const {
  for (size_t other = 0; other < shape_.servers; ++other) {
    const bool counts = other == server || view_.servers[other].state != ServerState::kGone;
    const ProgressNumbers numbers = world_.progress(rank_of(other));
    if (counts && numbers.servers_view < view_.servers[server].since) return false;
  }
  return world_.progress(rank_of(server)).phase == WorkerPhase::kTraining;
}

bool ServersManager::is_filled() const {
  for (size_t other = 0; other < shape_.servers; ++other) {
    if (view_.servers[other].state != ServerState::kWhole) continue;
    const ProgressNumbers numbers = world_.progress(rank_of(other));
    if (numbers.servers_view < view_.number || numbers.is_filling != 0) return false;
  }
  return true;
}

void ServersManager::tend() {
  if (const size_t joining = joining_server(view_); joining < shape_.servers) {
    if (is_filled()) decide(joining, ServerState::kWhole);
    return;
  }
  for (size_t server = 0; server < shape_.servers; ++server) {
    if (view_.servers[server].state != ServerState::kGone || !may_join(server)) continue;
    return decide(server, ServerState::kJoining);
  }
}

}  // namespace lockstep::train
