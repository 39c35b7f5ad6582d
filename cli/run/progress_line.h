#pragma once

#include <cstdint>
#include <string>

#include "common/api/step_number_table.h"
#include "common/api/training_job.h"

namespace lockstep::cli {

// The size of a step; 0: unknown, as for a program.
struct StepSize {
  double tokens = 0;
  double samples = 0;
};
StepSize step_size(const TrainSpec& train);

// The state of a run at one moment.
struct ProgressSnapshot {
  std::string name;
  std::string state;  // Pending, Forming, Running, ...
  StepNumbers numbers;
  StepSize step_size = {};
  int64_t restarts = 0;
  double elapsed_seconds = 0;
};

// Returns one line of at most `width` columns, with a bar if there is room:
// `kjv-gpt [#####.....]  620/1500  loss 1.934  23.1k tok/s  1:32 left`.
std::string progress_line(const ProgressSnapshot& snapshot, int width);
// The same for a log: no bar, but the time since the start.
std::string progress_log_line(const ProgressSnapshot& snapshot);

// Returns the number as `shown` says, "loss 1.934"; empty if it is unknown, or a rate of 0.
std::string number_text(const StepNumber& number, const StepNumbers& numbers,
                        const ShownNumber& shown);
// Returns how long the rest of the steps takes at this speed, as "1:32 left"; empty if that is
// unknown.
std::string time_left(const StepNumbers& numbers, const StepSize& step);

// 45 -> "0:45", 3723 -> "1:02:03".
std::string clock_text(double seconds);
// 412345 -> "412k", 1234 -> "1.23k".
std::string rate_text(double per_second);

}  // namespace lockstep::cli
