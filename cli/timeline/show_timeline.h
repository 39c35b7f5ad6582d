#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::cli {

struct TimelineOptions {
  std::string folder;           // of checkpoints, or of timeline files
  std::string trace;            // file for the Chrome trace; empty: none
  std::string svg;              // file for the picture; empty: none
  std::optional<int64_t> step;  // none: the newest recorded one
};

// Prints the table of a recorded step on stdout and writes the files that are asked for. Returns
// the exit code: 0, kExitBadInput if there is no such recording, or kExitFailed if a file cannot be
// written.
int show_timeline(const TimelineOptions& options);

}  // namespace lockstep::cli
