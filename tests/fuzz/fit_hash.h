#pragma once

#include "common/api/world_assignment.h"

namespace lockstep {

// Gives a document the hash of the world in it: one that was made up at random would never fit, and
// nothing behind that check would be reached.
inline void fit_hash(Json& document) {
  const Json* found = find_member(document, "world");
  if (found == nullptr) return;
  const Result<WorldAssignment> world = world_from_json(*found);
  if (world.ok()) document["hash"] = world_hash(*world);
}

}  // namespace lockstep
