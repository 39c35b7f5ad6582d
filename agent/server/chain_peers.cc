#include "agent/server/chain_peers.h"

#include <utility>

namespace lockstep::server {

ChainPeers::ChainPeers(rpc::Client::Options client,
                       const std::vector<rpc::Client::ServerAddress>& servers)
    : options_(std::move(client)) {
  // Messages that wait are bounded by the windows of the calls that they come from.
  options_.limits.queued_calls_max = size_t{1} << 24;
  for (const rpc::Client::ServerAddress& server : servers) servers_[server.rank] = server;
}

Status ChainPeers::prepare(size_t place) {
  if (ways_.contains(place)) return {};
  TRY_ASSIGN(auto client, rpc::Client::create(options_));
  Way& way = ways_[place];
  way.client = std::move(client);
  for (const auto& [rank, server] : servers_) way.peers[rank] = way.client->add_server(server);
  return {};
}

void ChainPeers::move(const std::vector<rpc::Client::ServerAddress>& servers) {
  for (const rpc::Client::ServerAddress& server : servers) {
    const auto found = servers_.find(server.rank);
    const bool is_new = found == servers_.end();
    if (!is_new && found->second.address == server.address) continue;
    servers_[server.rank] = server;
    for (auto& [place, way] : ways_) {
      if (!is_new) {
        way.peers.at(server.rank).leave("it moved to " + comm::to_string(server.address));
      }
      way.peers[server.rank] = way.client->add_server(server);
    }
  }
}

}  // namespace lockstep::server
