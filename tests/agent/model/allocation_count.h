#pragma once

#include <cstdint>

namespace lockstep::test {

// Returns the number of calls of operator new so far. The binary must link allocation_count.cc,
// which replaces operator new.
int64_t allocation_count();
// Returns the total number of bytes requested from operator new.
int64_t allocated_bytes();

}  // namespace lockstep::test
