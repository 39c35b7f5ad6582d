#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/server/parameter_client.h"
#include "agent/server/parameter_server.h"
#include "agent/server/placement.h"
#include "agent/server/routing.h"
#include "tests/agent/rpc/support.h"

namespace lockstep::test {

// A member of a world of sixteen ranks.
comm::Identity server_identity(uint32_t rank);

// Returns the rank of the primary of a key's row.
uint32_t primary_of(const server::Routing& routing, uint64_t key);

struct ServersSetup {
  server::Catalog catalog;
  std::vector<uint32_t> workers = {0, 1, 2};
  std::vector<uint32_t> servers = {8, 9};
  server::PlacementOptions placement;
  server::Consistency consistency;
  uint64_t seed = 5;
  uint64_t rows_max = 1000;
  size_t reply_bytes_max = size_t{1} << 30;
  server::HistoryRecorder recorder;
};

// Parameter servers in this process, on ports that the system chose. Workers may connect, from any
// process, before they serve.
class Servers {
 public:
  explicit Servers(ServersSetup setup);

  void start();
  void stop(size_t index) { servers_[index].reset(); }
  server::ParameterServer& operator[](size_t index) { return *servers_[index]; }

  const server::View& view() const { return view_; }
  const server::Catalog& catalog() const { return setup_.catalog; }
  std::vector<rpc::Client::ServerAddress> addresses() const;

 private:
  ServersSetup setup_;
  server::View view_;
  std::vector<Listener> listeners_;
  std::vector<std::unique_ptr<server::ParameterServer>> servers_;
};

// A worker of these servers, with its connections.
struct Worker {
  Worker(const Servers& servers, uint32_t rank);
  Worker(const Servers& servers, uint32_t rank, server::View view);
  Worker(const Servers& servers, uint32_t rank, server::View view,
         std::vector<rpc::Client::ServerAddress> addresses);
  std::unique_ptr<rpc::Client> rpc;
  std::unique_ptr<server::ParameterClient> parameters;
};

// Runs the function in a process of its own; it fails unless it returns true. Make it before this
// process has threads.
class WorkerProcess {
 public:
  explicit WorkerProcess(const std::function<bool()>& body);
  WorkerProcess(WorkerProcess&& other) noexcept;
  ~WorkerProcess();
  // Waits for its end; returns what the function did.
  bool join();

 private:
  pid_t pid_ = -1;
};

}  // namespace lockstep::test
