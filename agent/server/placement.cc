#include "agent/server/placement.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "agent/server/limits.h"
#include "common/api/server_places.h"
#include "kernels/ops/rounding.h"

namespace lockstep::server {
namespace {

// Returns the place of each range: in their order, the one with the fewest elements so far.
std::vector<size_t> places_of(const std::vector<DenseRange>& ranges, size_t places) {
  std::vector<uint64_t> loads(places);
  std::vector<size_t> chosen;
  for (const DenseRange& range : ranges) {
    const auto least = static_cast<size_t>(std::ranges::min_element(loads) - loads.begin());
    loads[least] += range.end - range.begin;
    chosen.push_back(least);
  }
  return chosen;
}

void cut_tensors(const Catalog& catalog, uint64_t elements_max, View& view) {
  for (uint32_t tensor = 0; tensor < catalog.tensors.size(); ++tensor) {
    const uint64_t count = catalog.tensors[tensor].count;
    const uint64_t parts = (count - 1) / elements_max + 1;
    for (uint64_t part = 0, begin = 0; part < parts; ++part) {
      const uint64_t end = begin + count / parts + (part < count % parts ? 1 : 0);
      view.ranges.push_back({.tensor = tensor, .begin = begin, .end = end, .chain = {}});
      begin = end;
    }
  }
}

struct Point {
  uint64_t position = 0;
  uint32_t slot = 0;
};

// A slot's points follow from a number: of its own server's rank, or after all of these.
std::vector<Point> ring_of(const std::vector<uint32_t>& servers, uint32_t slots,
                           uint32_t virtual_nodes) {
  std::vector<Point> points;
  const auto count = static_cast<uint32_t>(servers.size());
  for (uint32_t slot = 0; slot < slots; ++slot) {
    const uint64_t number = slot < count ? servers[slot] : servers.back() + 1 + slot - count;
    for (uint64_t node = 0; node < virtual_nodes; ++node) {
      points.push_back({ring_position(kernels::mixed_bits(number << 32 | node)), slot});
    }
  }
  std::ranges::sort(points, {}, &Point::position);
  return points;
}

// The servers of a place by rank.
Holders ranks_of(const PlaceHolders& place, const std::function<uint32_t(size_t)>& rank_of) {
  Holders holders;
  for (const size_t server : place.chain) holders.chain.push_back(rank_of(server));
  if (place.joining) holders.joining = rank_of(*place.joining);
  return holders;
}

void set_holders(const std::vector<PlaceHolders>& places,
                 const std::function<uint32_t(size_t)>& rank_of, View& view) {
  const std::vector<size_t> of_ranges = places_of(view.ranges, places.size());
  for (size_t i = 0; i < view.ranges.size(); ++i) {
    Holders holders = ranks_of(places[of_ranges[i]], rank_of);
    view.ranges[i].chain = std::move(holders.chain);
    view.ranges[i].joining = holders.joining;
  }
  for (size_t i = 0; i < view.slots.size(); ++i) view.slots[i] = ranks_of(places[i], rank_of);
}

int64_t copies_in(const View& view) {
  if (view.slots.empty() && view.ranges.empty()) return 0;
  const Chain& chain = view.slots.empty() ? view.ranges.front().chain : view.slots.front().chain;
  return std::ssize(chain) - 1;
}

}  // namespace

Result<View> view_of(const View& first, uint32_t first_server, const ServersView& standing) {
  const auto wrong = [&](const std::string& what) {
    return invalid("[server] view " + std::to_string(standing.number) + ": " + what);
  };
  const int64_t copies = copies_in(first);
  if (std::ssize(standing.servers) <= copies || counted_servers(standing) == 0) {
    return wrong("expected more servers than " + std::to_string(copies) + " copies");
  }
  const std::vector<PlaceHolders> places = holders_of_places(standing, copies);
  if (!first.slots.empty() && places.size() != first.slots.size()) {
    return wrong("expected " + std::to_string(first.slots.size()) + " places, got " +
                 std::to_string(places.size()));
  }
  if (std::ranges::any_of(places, [](const PlaceHolders& place) { return place.chain.empty(); })) {
    return conflict("[server] view " + std::to_string(standing.number) +
                    ": all servers of a chain are gone");
  }
  View view = first;
  view.number = static_cast<uint64_t>(servers_changed_in(standing));
  set_holders(
      places, [&](size_t server) { return first_server + static_cast<uint32_t>(server); }, view);
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
  const size_t places = std::max<size_t>(options.places, servers.size());
  const uint64_t arcs = uint64_t{options.virtual_nodes} * places;
  if (options.range_elements_max == 0 || arcs == 0 || arcs > kArcsMax || places > kSlotsMax) {
    return invalid("[server] expected ranges of at least 1 element, at most " +
                   std::to_string(kSlotsMax) + " places, and 1 to " + std::to_string(kArcsMax) +
                   " virtual nodes");
  }
  View view{.round = members.round,
            .number = members.number,
            .catalog = digest_of(catalog),
            .workers = members.workers};
  cut_tensors(catalog, options.range_elements_max, view);
  if (!catalog.tables.empty()) {
    view.slots.resize(places);
    const auto slots = static_cast<uint32_t>(places);
    for (const Point& point : ring_of(servers, slots, options.virtual_nodes)) {
      view.arcs.push_back({point.position, point.slot});
    }
  }
  const ServersView first = first_servers_view(servers.size(), static_cast<int64_t>(places));
  set_holders(
      holders_of_places(first, options.copies), [&](size_t server) { return servers[server]; },
      view);
  TRY(check_view(view, catalog));
  return view;
}

}  // namespace lockstep::server
