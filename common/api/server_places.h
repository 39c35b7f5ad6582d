#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/api/servers_view.h"

namespace lockstep {

// The shares of the parameters that servers hold in a view. The parameters are cut into places,
// which stay the same for the round; each process knows which parameters belong to which place
// (agent/server/placement.h). Servers are named by their place among the servers.

// The servers of a place, in the order of the chain.
struct PlaceHolders {
  std::vector<size_t> chain;                     // those that hold it; the first one is its primary
  std::optional<size_t> joining = std::nullopt;  // one that is being filled, and will be the last

  bool operator==(const PlaceHolders&) const = default;
};

// Returns the number of places for a round that begins with that many servers: several for each, so
// that a server that is added later gets a share of each.
int64_t places_for(size_t servers);

// Returns the holders of each place. It begins at the server of its number, modulo the number of
// servers, and the `copies` that follow it in the list, around its end. A server that is added
// takes its share from those with the most places, and one that leaves hands each of its places to
// the server with the fewest; if it is added again, it takes the same places back. A chain has its
// servers that hold it in the order in which they began to. Pure; the view can be, and has more
// servers that count than copies.
std::vector<PlaceHolders> holders_of_places(const ServersView& view, int64_t copies);
// Returns whether each place has a server that holds it.
bool holds_everything(const ServersView& view, int64_t copies);

}  // namespace lockstep
