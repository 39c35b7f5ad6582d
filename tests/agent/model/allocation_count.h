#pragma once

#include <cstdint>

namespace lockstep::testing {

// Calls of operator new so far in a binary that links allocation_count.cc, which replaces it.
int64_t allocation_count();
// The bytes that they asked for, together.
int64_t allocated_bytes();

}  // namespace lockstep::testing
