#pragma once

#include <string>

#include "kernels/device/arena.h"

namespace lockstep::kernels {

// Returns all of a plan as text, for comparison: a line for each part, and one for the totals.
inline std::string arena_text(const ArenaPlan& plan) {
  std::string text;
  for (const ArenaPart& part : plan.parts) {
    text += std::string(name_of(part.use)) + " " + part.name + " " + std::to_string(part.bytes) +
            " at " + std::to_string(part.offset) + "\n";
  }
  return text + "total " + std::to_string(plan.bytes) + ", reserved " +
         std::to_string(plan.reserve) + "\n";
}

}  // namespace lockstep::kernels
