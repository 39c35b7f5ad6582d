#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/server/catalog.h"
#include "agent/server/unit_clock.h"
#include "agent/server/view.h"
#include "tests/agent/rpc/support.h"

namespace lockstep::test {

inline constexpr uint32_t kChaosDim = 3;
inline constexpr uint32_t kChaosManager = 15;  // its rank
inline constexpr uint64_t kChaosSeed = 41;     // of new rows
server::Catalog chaos_catalog();

// The processes of a run: servers, of which some are not in the first view, and workers. They write
// their histories to files in the folder.
class ChaosProcesses {
 public:
  struct Options {
    std::string folder;
    uint64_t seed = 0;
    server::Consistency consistency;
    server::View view;
    std::vector<uint32_t> servers;  // also those that are not in the view
    uint64_t steps = 0;
    bool cuts_connections = false;
    uint32_t calls_max = 0;
  };
  explicit ChaosProcesses(Options options);
  ~ChaosProcesses();

  std::vector<rpc::Client::ServerAddress> addresses() const { return addresses_; }
  void signal(uint32_t rank, int number) { children_.at(rank)->signal(number); }
  // Hands the view to the worker, which need not be alive.
  void give_view(uint32_t worker, const std::string& text);
  uint64_t steps_of(uint32_t worker) const { return shared_->steps[worker]; }
  bool has_failed(uint32_t worker) const { return shared_->failed[worker]; }
  uint64_t cuts() const { return shared_->cuts; }

  static std::string server_file(const std::string& folder, uint32_t rank);
  static std::string worker_file(const std::string& folder, uint32_t rank);

 private:
  struct Shared {  // by all processes
    std::atomic<uint64_t> steps[16];
    std::atomic<bool> failed[16];
    std::atomic<uint64_t> cuts;
  };
  void serve(uint32_t rank, int listen_fd) const;
  void train(uint32_t rank, int views) const;

  Options options_;
  std::vector<rpc::Client::ServerAddress> addresses_;
  Shared* shared_ = nullptr;
  std::map<uint32_t, int> views_;  // by worker: pipes
  std::map<uint32_t, std::unique_ptr<Child>> children_;
};

}  // namespace lockstep::test
