#pragma once

namespace lockstep::comm {

// Returns how many times as long a copy by the kernel from process to process (peer_memory.h) takes
// as one within a process, for blocks that fit in caches. Uses the shortest of several tries of
// each, in well below a millisecond. Infinite if the kernel does not make such copies.
double measure_loan_cost();

}  // namespace lockstep::comm
