#pragma once

#include <span>
#include <vector>

namespace lockstep::comm {

// The ranks of a group by host. A pure function of the layout, so that every rank of the group has
// the same map.
struct HostMap {
  std::vector<std::vector<int>> ranks;  // ranks of the group, by host; ascending
  std::vector<int> host;                // by rank; hosts are numbered in order of appearance
  std::vector<int> place;               // by rank: its place among the ranks of its host
  int lanes = 0;                        // number of ranks on the fullest host

  int hosts() const { return static_cast<int>(ranks.size()); }
  // Whether there are several hosts, at least one with several ranks: then by-host algorithms pay
  // off.
  bool has_two_levels() const { return hosts() > 1 && lanes > 1; }
  // Returns the rank that does this lane's work on a host.
  int owner(int on_host, int lane) const {
    const std::vector<int>& there = ranks[static_cast<size_t>(on_host)];
    return there[static_cast<size_t>(lane) % there.size()];
  }
};

// `node_of_rank`: a number for each rank of the group, equal for the ranks of one host.
HostMap make_host_map(std::span<const int> node_of_rank);

}  // namespace lockstep::comm
