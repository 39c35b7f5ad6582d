#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "agent/comm/socket.h"

namespace lockstep::test {

// Carries connections to a port of this machine, and cuts each after a random number of bytes: it
// closes both sides and drops what has not been carried.
class CuttingProxy {
 public:
  struct Options {
    int target_port = 0;
    uint64_t seed = 0;
    uint64_t bytes_min = 0;  // of both directions together
    uint64_t bytes_max = 0;
  };
  explicit CuttingProxy(const Options& options);
  ~CuttingProxy();
  int port() const { return port_; }
  int cuts() const { return cuts_; }
  // Cuts no more.
  void heal() { heals_ = true; }

 private:
  void run();
  void carry(comm::UniqueFd from, uint64_t bytes);

  Options options_;
  comm::UniqueFd listener_;
  int port_ = 0;
  std::atomic<int> cuts_{0};
  std::atomic<bool> heals_{false};
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace lockstep::test
