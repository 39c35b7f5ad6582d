#pragma once

namespace lockstep {

// How many times as long a copy takes that the kernel makes from process to process (peer_memory.h)
// as one within a process, of blocks that fit in caches: the least of some tries each, in well
// below a millisecond. Infinite where the kernel makes none.
double loan_cost();

}  // namespace lockstep
