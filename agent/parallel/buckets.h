#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/parameters.h"

namespace lockstep::parallel {

// A run of neighbouring parameters whose gradients are reduced together.
struct Bucket {
  int64_t first_id = 0;
  int64_t last_id = 0;
  int64_t offset = 0;  // floats in the arena
  int64_t count = 0;   // floats, gaps included

  bool operator==(const Bucket&) const = default;
};

// Cuts a gradient arena into buckets of at least `bucket_bytes` (but for the last one), in the
// order in which backward completes them: from the last parameter to the first. A pure function of
// the layout, so that every rank and every run cuts alike.
std::vector<Bucket> make_buckets(const ParameterArena& arena, int64_t bucket_bytes);

}  // namespace lockstep::parallel
