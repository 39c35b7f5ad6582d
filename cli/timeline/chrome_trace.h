#pragma once

#include <string>

#include "cli/timeline/recording.h"

namespace lockstep::cli {

// Returns all steps of the recording in the Trace Event Format, as chrome://tracing and Perfetto
// read it. A rank is a process with two threads: what it computes, and what it sends, receives and
// waits for. Times are microseconds from the first step's begin, on rank 0's clock.
// Source: "Trace Event Format", Google.
std::string chrome_trace(const Recording& recording);

}  // namespace lockstep::cli
