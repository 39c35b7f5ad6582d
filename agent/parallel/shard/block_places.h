#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/layout/model_design.h"
#include "common/layout/shard_layout.h"

namespace lockstep::parallel {

// Where whole units of a sharded model are in memory while blocks compute. A unit may have several
// places, at which it is gathered at different times.
struct UnitPlace {
  size_t unit = 0;
  int64_t offset = 0;  // floats from the beginning of the memory

  bool operator==(const UnitPlace&) const = default;
};

struct BlockPlaces {
  std::vector<UnitPlace> places;
  std::vector<std::vector<size_t>>
      of_block;       // by block of the model: indices of the places it reads; none elsewhere
  int64_t count = 0;  // floats of the memory
};

// The places of parameters. With `frees`, a block's are free again once it has computed: blocks
// alternate between the two ends of the memory, which has room for any two neighbours. A tied
// embedding has a place at the head too. Otherwise every unit has a place of its own, that of the
// arena. `blocks`: those of the rank, ascending. Each is a unit of the layout
// (ShardLayout::Cut::unit_bytes 0). Pure.
BlockPlaces parameter_places(const ModelDesign& design, const std::vector<int64_t>& blocks,
                             const ShardLayout& layout, bool frees);

// The places of gradients: units alternate between the two ends of the memory, likewise, so the
// first and the last unit may overlap. Those of a tied embedding, which the head adds to first and
// the embedding last, have a place of their own. Returns the place of each unit.
struct GradientPlaces {
  std::vector<int64_t> offsets;  // by unit: floats
  // By unit: which of the places it has. 0 and 1 are the ends of the memory, 2 a tied embedding's.
  std::vector<size_t> places;
  int64_t count = 0;  // floats of the memory
};
GradientPlaces gradient_places(const ModelDesign& design, const ShardLayout& layout);

}  // namespace lockstep::parallel
