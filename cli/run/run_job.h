#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"

namespace lockstep {

struct RunOptions {
  std::string file;
  std::string output;          // folder of the results; empty: ./lockstep-runs/<job>-<time>
  bool json = false;           // one line of JSON on stdout at the end
  std::string program_folder;  // where lockstep-controller, -agent and -worker are
};

inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitInterrupted = 130;

// Trains the job of a file on this machine and returns the exit code: 0 for Complete alone,
// kExitBadInput before anything was started, kExitInterrupted after a signal, else kExitFailed.
// Once the input is read, SIGINT, SIGTERM and SIGHUP are blocked; the first one ends the job within
// its grace period, the second one at once. Called where there is one thread.
int run_job(const RunOptions& options, const Clock& clock);

// Checks each file as run_job would; 0 or kExitBadInput.
int validate_files(const std::vector<std::string>& files);

}  // namespace lockstep
