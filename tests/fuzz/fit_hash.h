#pragma once

#include "common/api/world_assignment.h"

namespace lockstep::fuzz {

// Sets the document's hash to that of the world in it. A random hash would never match, so that no
// code after that check would be reached.
inline void fit_hash(Json& document) {
  const Json* found = find_member(document, "world");
  if (found == nullptr) return;
  const Result<WorldAssignment> world = world_from_json(*found);
  if (world.ok()) document["hash"] = world_hash(*world);
}

}  // namespace lockstep::fuzz
