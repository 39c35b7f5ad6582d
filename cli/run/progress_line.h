#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::cli {

// The state of a run at one moment.
struct ProgressSnapshot {
  std::string name;
  std::string state;  // Pending, Forming, Running, ...
  int64_t step = 0;
  int64_t steps = 0;  // 0: unknown, as for a program that does not report it
  std::optional<double> loss;
  double tokens_per_second = 0;
  double tokens_per_step = 0;
  std::optional<double> mfu;      // fraction of 1, by PaLM's formula
  double samples_per_second = 0;  // for a program that counts samples
  int64_t restarts = 0;
  double elapsed_seconds = 0;
};

// Returns one line of at most `width` columns, with a bar if there is room:
// `kjv-gpt [#####.....]  620/1500  loss 1.934  23.1k tok/s  1:32 left`.
std::string progress_line(const ProgressSnapshot& snapshot, int width);
// The same for a log: no bar, but the time since the start.
std::string progress_log_line(const ProgressSnapshot& snapshot);

// 45 -> "0:45", 3723 -> "1:02:03".
std::string clock_text(double seconds);
// 412345 -> "412k", 1234 -> "1.23k".
std::string rate_text(double per_second);

}  // namespace lockstep::cli
