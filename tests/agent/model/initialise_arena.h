#pragma once

#include <algorithm>
#include <vector>

#include "agent/model/init.h"
#include "common/layout/model_design.h"

namespace lockstep::model {

// Fills a rank's whole arena, in host memory; gaps become zero.
inline void initialise_arena(const ModelDesign& design, const ParameterArena& arena,
                             const TensorShard& shard, uint64_t seed, float* out) {
  std::fill_n(out, arena.count, 0.0f);
  const std::vector<Parameter> table = parameter_table(design);
  for (const ArenaEntry& entry : arena.entries) {
    initialise({.parameter = table[static_cast<size_t>(entry.id)],
                .entry = entry,
                .shard = shard,
                .layers = residual_layers(design),
                .seed = seed},
               0, {out + entry.offset, static_cast<size_t>(entry.count)});
  }
}

}  // namespace lockstep::model
