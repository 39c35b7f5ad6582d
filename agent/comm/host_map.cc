#include "agent/comm/host_map.h"

#include <algorithm>
#include <map>

namespace lockstep::comm {

HostMap make_host_map(std::span<const int> node_of_rank) {
  HostMap map;
  std::map<int, int> number;
  for (size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const auto [found, is_new] = number.try_emplace(node_of_rank[rank], map.hosts());
    if (is_new) map.ranks.emplace_back();
    std::vector<int>& there = map.ranks[static_cast<size_t>(found->second)];
    map.host.push_back(found->second);
    map.place.push_back(static_cast<int>(there.size()));
    there.push_back(static_cast<int>(rank));
    map.lanes = std::max(map.lanes, static_cast<int>(there.size()));
  }
  return map;
}

}  // namespace lockstep::comm
