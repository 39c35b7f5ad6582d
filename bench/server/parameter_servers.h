#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "agent/comm/handshake.h"
#include "agent/rpc/client.h"
#include "agent/server/catalog.h"
#include "agent/server/unit_clock.h"
#include "agent/server/view.h"

namespace lockstep::bench {

// Parameter servers on loopback, in processes of their own, until destroyed. Ranks below `workers`
// are the workers'. Make them before this process has threads.
class ParameterServers {
 public:
  struct Options {
    uint32_t workers = 1;
    uint32_t servers = 1;
    server::Catalog catalog;
    server::Consistency consistency;
  };
  explicit ParameterServers(Options options);
  ~ParameterServers();
  ParameterServers(const ParameterServers&) = delete;
  ParameterServers& operator=(const ParameterServers&) = delete;

  comm::Identity identity_of(uint32_t rank) const;
  const server::Catalog& catalog() const { return options_.catalog; }
  const server::View& view() const { return view_; }
  const std::vector<rpc::Client::ServerAddress>& addresses() const { return addresses_; }

 private:
  void begin(uint32_t rank);
  [[noreturn]] void serve(uint32_t rank, int listener) const;

  Options options_;
  server::View view_;
  std::vector<pid_t> pids_;
  std::vector<rpc::Client::ServerAddress> addresses_;
};

}  // namespace lockstep::bench
