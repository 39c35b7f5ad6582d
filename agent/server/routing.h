#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/server/view.h"

namespace lockstep::server {

// The keys of one slot, among those of a call.
struct RoutedKeys {
  uint32_t slot = 0;
  std::vector<uint64_t> keys;    // ascending
  std::vector<uint32_t> places;  // their indices in the call's list
};

// Where a view says that parameters are. Immutable, so threads may share it.
class Routing {
 public:
  explicit Routing(std::shared_ptr<const View> view);

  const View& view() const { return *view_; }
  const Fence& fence() const { return fence_; }
  // Returns the indices of the tensor's ranges: [first, second).
  std::pair<size_t, size_t> ranges_of(uint32_t tensor) const;
  // Returns the index of the arc with the ring position; in constant time for arcs that are spread
  // evenly. The view has arcs.
  size_t arc_of(uint64_t position) const;
  // Returns the slot of the row. The view has arcs.
  uint32_t slot_of(uint64_t key) const { return view_->arcs[arc_of(ring_position(key))].slot; }
  // Ranks of all primaries, ascending.
  const std::vector<uint32_t>& servers() const { return servers_; }
  // Splits ascending keys by slot. Every slot gets a list, maybe an empty one: each has a clock for
  // the table.
  std::vector<RoutedKeys> split(std::span<const uint64_t> keys) const;

 private:
  void index_arcs();

  std::shared_ptr<const View> view_;
  Fence fence_;
  std::vector<uint32_t> servers_;
  // The ring in parts of equal size, named by a position's first bits: how many arcs begin before
  // each part, and in all.
  std::vector<uint32_t> arcs_before_;
  int part_shift_ = 0;
};

}  // namespace lockstep::server
