#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "tests/agent/comm/small_frames.h"

namespace lockstep::test {

enum class Transport { kThreads, kShared, kTcp, kMixed };
std::string name_of(Transport transport);
// Returns the number of hosts for this many ranks: equally many on each, one host after the other.
int hosts_of(Transport transport, int size);

// Ranks that have their listening sockets (on ports chosen by the system) and their shared memory,
// but have not met yet. Mixed: two nodes, with the first and the second half of the ranks.
class Meeting {
 public:
  Meeting(Transport transport, int size);
  // Where each rank listens. The socket is owned from now on. Ranks of one node share memory.
  struct Place {
    std::string host;
    int listen_fd = -1;
    int node = 0;
  };
  explicit Meeting(const std::vector<Place>& places);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int size() const { return static_cast<int>(options_.size()); }
  // A communicator made with these options takes over their listening socket and memory.
  comm::CommOptions& options(int rank) { return options_[static_cast<size_t>(rank)]; }
  // Set limits of every rank.
  void set_limits(Duration forming, Duration operation);
  void set_comm_limits(const comm::CommLimits& limits);
  // For a forked rank: closes the other ranks' listening sockets.
  void keep_only(int rank);

 private:
  std::vector<comm::CommOptions> options_;
  std::vector<int> memory_;  // a memfd for each node
};

using World = std::vector<std::unique_ptr<comm::Communicator>>;

// Forms a world of ranks in this process, with a thread for each while they form. Fails the test if
// a rank cannot form.
World make_world(Transport transport, int size, Duration operation_limit = std::chrono::seconds(60),
                 const comm::CommLimits& limits = Limits());

// Runs body(communicator) on a thread for every rank, and joins them.
void on_all(World& world, const std::function<void(comm::Communicator&)>& body);
// Runs body(communicator) in a process for every rank, which first calls prepare(rank) and then
// meets the others. Waits for all of them. Fails the test if a rank cannot meet the others, exits
// abnormally or fails an assertion.
void on_processes(Meeting& meeting, const std::function<void(int)>& prepare,
                  const std::function<void(comm::Communicator&)>& body);
// Runs body(rank) on a thread for every rank, and joins them.
void on_ranks(int size, const std::function<void(int)>& body);

}  // namespace lockstep::test
