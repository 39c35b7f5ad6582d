#pragma once

#include <string>

#include "bench/collectives/library.h"

namespace lockstep {

// Serves measure.py, which gives one library after the other its turn, on a connected Unix socket
// that is taken over. First goes a line that says who is here; then each line
// `OPERATION BYTES TIMES CHECK` is answered by one of JSON, until the other side closes:
//   OPERATION  all-reduce, all-reduce-lor, all-gather, reduce-scatter, broadcast, all-to-all
//   BYTES      of the larger of what a rank gives and what it ends with, as in nccl-tests; at least
//              an element a block
//   TIMES      how many samples; warm-up comes on top
//   CHECK      1: the result of one operation is compared with a plain loop first
//   answer     {"lacks": "..."} or {"bytes": those, "wrong": elements, "minUs":, "p50Us":,
//   "p99Us":, "meanUs":}
// A sample is one operation; of a broadcast, whose root would else run ahead of the others, one
// with each rank as root, divided by their number. Returns the exit code.
int serve_turns(int socket, Library& library);

}  // namespace lockstep
