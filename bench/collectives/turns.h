#pragma once

#include <string>

#include "bench/collectives/library.h"

namespace lockstep::bench {

// Serves requests of measure.py, which gives each library its turn, on a connected Unix socket that
// this function takes ownership of. Sends one line that identifies the rank and the library. Then
// answers each line `OPERATION BYTES TIMES CHECK` with one line of JSON, until the other side
// closes:
//   OPERATION  all-reduce, all-reduce-lor, all-gather, reduce-scatter, broadcast, all-to-all
//   BYTES      size of the larger of a rank's input and output, as in nccl-tests; at least one
//              element per block
//   TIMES      number of samples, not counting warm-up
//   CHECK      1: first compare the result of one operation with a plain loop
//   answer     {"lacks": "..."}, or {"bytes": actual size, "wrong": elements, "minUs":, "p50Us":,
//              "p99Us":, "meanUs":}
// A sample is the time of one operation. A broadcast's root would run ahead of the other ranks, so
// a broadcast sample is the mean of one broadcast from each rank. Returns the exit code.
int serve_turns(int socket, Library& library);

}  // namespace lockstep::bench
