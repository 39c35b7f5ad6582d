#pragma once

#include <span>
#include <vector>

namespace lockstep {

// The ranks of a group by the hosts that they are on. A pure function of the layout, so that every
// rank of the group has the same one.
struct HostMap {
  std::vector<std::vector<int>> ranks;  // of the group, by host; ascending
  std::vector<int> host;                // by rank; hosts are numbered as they appear
  std::vector<int> place;               // by rank: its place among those of its host
  int lanes = 0;                        // ranks of the fullest host

  int hosts() const { return static_cast<int>(ranks.size()); }
  // Several hosts, of which one at least has several ranks: going through the hosts first pays.
  bool has_two_levels() const { return hosts() > 1 && lanes > 1; }
  // The rank that does this lane's work on a host.
  int owner(int on_host, int lane) const {
    const std::vector<int>& there = ranks[static_cast<size_t>(on_host)];
    return there[static_cast<size_t>(lane) % there.size()];
  }
};

// `node_of_rank`: any number for each rank of the group, the same for those of one host.
HostMap make_host_map(std::span<const int> node_of_rank);

}  // namespace lockstep
