#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "agent/rpc/client.h"
#include "common/base/result.h"

namespace lockstep::server {

// A server's ways to the next servers of chains. Each place in a chain has a client of its own, so
// its calls have windows of their own: calls of a primary wait for those of the second server,
// which wait for those of the third. With shared windows, servers that are in each other's chains
// could wait for each other for ever.
class ChainPeers {
 public:
  ChainPeers(rpc::Client::Options client, const std::vector<rpc::Client::ServerAddress>& servers);

  bool knows(uint32_t rank) const { return servers_.contains(rank); }
  // Makes the client for servers at this place of a chain, if there is none. Errors as
  // rpc::Client::create().
  Status prepare(size_t place);
  // Returns the way from this place to a server that is known. The place is prepared.
  rpc::Peer at(size_t place, uint32_t rank) const { return ways_.at(place).peers.at(rank); }
  // Looks for these servers at these addresses from now on, also for new ones. Calls to a server's
  // previous address fail.
  void move(const std::vector<rpc::Client::ServerAddress>& servers);
  // Ends all calls.
  void close() { ways_.clear(); }

 private:
  struct Way {
    std::unique_ptr<rpc::Client> client;
    std::map<uint32_t, rpc::Peer> peers;  // by rank
  };
  rpc::Client::Options options_;
  std::map<uint32_t, rpc::Client::ServerAddress> servers_;  // by rank
  std::map<size_t, Way> ways_;                              // by place
};

}  // namespace lockstep::server
