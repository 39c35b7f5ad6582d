#pragma once

#include <cstdint>
#include <vector>

#include "agent/server/view.h"
#include "common/api/servers_view.h"

namespace lockstep::server {

// The ranks of a view.
struct ViewMembers {
  uint64_t round = 0;
  uint64_t number = 1;
  std::vector<uint32_t> workers;  // ranks, ascending
  std::vector<uint32_t> servers;  // ranks, ascending
};

struct PlacementOptions {
  uint32_t copies = 0;  // further servers that hold each range
  uint32_t places = 0;  // (server_places.h); as many as servers, if those are more
  // Tensors are cut into ranges of at most this many elements, of nearly equal size.
  uint64_t range_elements_max = uint64_t{1} << 22;
  // Points of each place on the ring. With v points a place's share of the rows deviates from
  // the mean by about 1 / sqrt(v). Source: Karger et al., "Consistent hashing and random trees",
  // STOC'97.
  uint32_t virtual_nodes = 128;
};

// Returns the view that places the catalog's parameters on the servers, as holders_of_places() says
// who holds which place:
// - a range belongs to the place with the fewest elements so far;
// - each place has one slot, which has the arcs that begin at the place's points. A place more, or
//   less, moves only the arcs that it gets or had.
// Pure. kInvalid for a wrong catalog, no server or worker, or not more servers than copies.
Result<View> place(const Catalog& catalog, const ViewMembers& members,
                   const PlacementOptions& options);

// Returns the view of `standing`, made from the round's first one, which was made with as many
// places. Its number is that of the newest view that changed a server: others are of no concern to
// ranges and slots. `first_server`: the rank of the first server of `standing`. Living servers that
// get these views in order may follow each, also if they skip some, but for one that says that a
// server is gone, is new or leaves (ParameterServer::install()). Pure. kConflict if nobody has some
// range or slot any more, kInvalid for another number of places.
Result<View> view_of(const View& first, uint32_t first_server, const ServersView& standing);

}  // namespace lockstep::server
