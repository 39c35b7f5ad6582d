#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/api/servers_view.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {

// Plays the controller and the agents of a round with servers: decides views from the pages of the
// processes, hands them out, and starts dead processes anew.
class ServersManager {
 public:
  struct Shape {
    int64_t workers = 0;
    size_t servers = 0;
    int64_t places = 0;
  };
  ServersManager(WorkerWorld& world, Shape shape)
      : world_(world), shape_(shape), view_(first_servers_view(shape.servers, shape.places)) {}

  // Kills the server, and goes on without it.
  void kill(size_t server);
  // Kills the worker, whose next process takes its place in the round.
  void kill_worker(int64_t rank);
  // Takes the server's machine away: it says nothing more, and its process begins anew at another
  // address, as in another pod.
  void lose_pod(size_t server);
  // Starts another server, or lets the last one leave, while none is about to be added or to leave.
  void add_server();
  void remove_server();
  // Lets a server that was started anew join, or be whole, or have left, once it may. Call it
  // often.
  void tend();

  const ServersView& view() const { return view_; }
  // All that have not left.
  bool are_all_whole() const;
  int64_t rank_of(size_t server) const { return shape_.workers + static_cast<int64_t>(server); }

 private:
  void decide(size_t server, ServerState state) { give(next_view(view_, server, state)); }
  void give(const ServersView& view);
  bool may_join(size_t server) const;
  bool is_filled() const;

  WorkerWorld& world_;
  Shape shape_;
  ServersView view_;
  ServerPlace first_place(size_t server) const;
  std::string next_host();
  int64_t pods_ = 0;  // that took the places of others, or were added
};

}  // namespace lockstep::train
