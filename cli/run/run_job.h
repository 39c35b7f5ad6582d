#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::cli {

struct RunOptions {
  std::string file;
  std::string output;          // for the results; empty: ./lockstep-runs/<job>-<time>
  bool json = false;           // print one line of JSON on stdout at the end
  std::string program_folder;  // with lockstep-controller, -agent and -worker
};

inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitInterrupted = 130;

// Trains a job on this machine. Returns 0 if it is Complete, kExitBadInput if nothing was started,
// kExitInterrupted after a signal, else kExitFailed. Blocks SIGINT, SIGTERM and SIGHUP once the
// input is read: the first one ends the job within its grace period, the second one immediately.
// Call it while the process has one thread.
int run_job(const RunOptions& options, const Clock& clock);

// Makes the job of a file this process's standard input, for `lockstep-worker plan`. Its data need
// not exist. kInvalid lists all problems, one per line.
Status put_job_on_stdin(const std::string& file);

// Checks each file as run_job() would, with the lockstep-worker in `program_folder`; returns 0 or
// kExitBadInput.
int validate_files(const std::vector<std::string>& files, const std::string& program_folder);

}  // namespace lockstep::cli
