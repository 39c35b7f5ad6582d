#include "agent/server/placement.h"

#include <algorithm>
#include <string>
#include <utility>

#include "agent/server/limits.h"
#include "kernels/ops/rounding.h"

namespace lockstep::server {
namespace {

// Returns the server at `first` of the list and the `copies` after it.
Chain followers(const std::vector<uint32_t>& servers, size_t first, uint32_t copies) {
  Chain chain;
  for (size_t i = 0; i <= copies; ++i) chain.push_back(servers[(first + i) % servers.size()]);
  return chain;
}

void place_tensors(const Catalog& catalog, const std::vector<uint32_t>& servers,
                   const PlacementOptions& options, View& view) {
  std::vector<uint64_t> loads(servers.size());
  for (uint32_t tensor = 0; tensor < catalog.tensors.size(); ++tensor) {
    const uint64_t count = catalog.tensors[tensor].count;
    const uint64_t parts = (count - 1) / options.range_elements_max + 1;
    for (uint64_t part = 0, begin = 0; part < parts; ++part) {
      const uint64_t end = begin + count / parts + (part < count % parts ? 1 : 0);
      const auto least = static_cast<size_t>(std::ranges::min_element(loads) - loads.begin());
      loads[least] += end - begin;
      view.ranges.push_back({tensor, begin, end, followers(servers, least, options.copies)});
      begin = end;
    }
  }
}

struct Point {
  uint64_t position = 0;
  uint32_t slot = 0;
};

std::vector<Point> ring_of(const std::vector<uint32_t>& servers, uint32_t virtual_nodes) {
  std::vector<Point> points;
  for (uint32_t slot = 0; slot < servers.size(); ++slot) {
    for (uint64_t node = 0; node < virtual_nodes; ++node) {
      const uint64_t name = kernels::mixed_bits(uint64_t{servers[slot]} << 32 | node);
      points.push_back({ring_position(name), slot});
    }
  }
  std::ranges::sort(points, {}, &Point::position);
  return points;
}

void place_rows(const std::vector<uint32_t>& servers, const PlacementOptions& options, View& view) {
  for (size_t i = 0; i < servers.size(); ++i) {
    view.slots.push_back({followers(servers, i, options.copies)});
  }
  for (const Point& point : ring_of(servers, options.virtual_nodes)) {
    view.arcs.push_back({point.position, point.slot});
  }
}

// The chain of the first view, as the servers are now.
Result<Holders> holders_now(const Chain& first, uint32_t first_server,
                            const ServersView& standing) {
  const auto standing_of = [&](uint32_t rank) { return standing.servers[rank - first_server]; };
  Holders holders;
  for (const uint32_t rank : first) {
    if (rank < first_server || rank - first_server >= standing.servers.size()) {
      return invalid("[server] view " + std::to_string(standing.number) +
                     " does not say how rank " + std::to_string(rank) + " is");
    }
    const ServerState state = standing_of(rank).state;
    if (state == ServerState::kWhole) holders.chain.push_back(rank);
    if (state == ServerState::kJoining) holders.joining = rank;
  }
  if (holders.chain.empty()) {
    return conflict("[server] view " + std::to_string(standing.number) +
                    ": all servers of a chain are gone");
  }
  std::ranges::stable_sort(holders.chain, {},
                           [&](uint32_t rank) { return standing_of(rank).since; });
  return holders;
}

}  // namespace

Result<View> view_of(const View& first, uint32_t first_server, const ServersView& standing) {
  View view = first;
  view.number = static_cast<uint64_t>(servers_changed_in(standing));
  for (DenseRange& range : view.ranges) {
    TRY_ASSIGN(Holders now, holders_now(range.chain, first_server, standing));
    range.chain = std::move(now.chain);
    range.joining = now.joining;
  }
  for (Holders& slot : view.slots) {
    TRY_ASSIGN(slot, holders_now(slot.chain, first_server, standing));
  }
  return view;
}

Result<View> place(const Catalog& catalog, const ViewMembers& members,
                   const PlacementOptions& options) {
  TRY(check_catalog(catalog));
  const std::vector<uint32_t>& servers = members.servers;
  if (servers.empty() || servers.size() > kServersMax || options.copies >= servers.size() ||
      options.copies >= kChainMax) {
    return invalid("[server] expected " + std::to_string(options.copies + 1) + " to " +
                       std::to_string(kServersMax) + " servers for " +
                       std::to_string(options.copies) + " copies, got " +
                       std::to_string(servers.size()),
                   Blame::kConfig);
  }
  const uint64_t arcs = uint64_t{options.virtual_nodes} * servers.size();
  if (options.range_elements_max == 0 || arcs == 0 || arcs > kArcsMax) {
    return invalid("[server] expected ranges of at least 1 element, and 1 to " +
                   std::to_string(kArcsMax) + " virtual nodes");
  }
  View view{.round = members.round,
            .number = members.number,
            .catalog = digest_of(catalog),
            .workers = members.workers};
  place_tensors(catalog, servers, options, view);
  if (!catalog.tables.empty()) place_rows(servers, options, view);
  TRY(check_view(view, catalog));
  return view;
}

}  // namespace lockstep::server
