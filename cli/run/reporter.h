#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run/progress_line.h"
#include "common/api/training_job.h"
#include "common/base/clock.h"

namespace lockstep::cli {

// Returns what to tell a user when a job's status changes: rounds, restarts with their cause,
// checkpoints, conditions that became true. In reading order. Leaves out what ends the run,
// which the result says: the last failure, and a job that the controller refuses.
std::vector<std::string> status_events(const TrainingJobStatus& before,
                                       const TrainingJobStatus& after);

// The end of the log that a Failed condition quotes, and the lines of it that the user has not
// seen.
struct QuotedLog {
  std::string log;
  std::string unseen;
};
// Returns the message of a Failed condition without the lines that the user has seen.
std::string failed_message(const std::string& message, const QuotedLog& quoted);

// Prints to the user on stderr. On a terminal: one live line below the lines of events; elsewhere a
// plain line every few seconds. Not thread-safe.
class Reporter {
 public:
  // `clock` outlives the reporter.
  Reporter(const Clock& clock, int fd);

  void line(std::string_view text);
  void progress(const ProgressSnapshot& snapshot);
  // Prints the job's own lines, each with its newline, above the live line, on stdout or stderr.
  void output(std::string_view lines, int fd);
  // Removes the live line, before other output.
  void clear();

 private:
  void write_all(std::string_view text);
  int columns() const;

  const Clock& clock_;
  int fd_;
  bool terminal_;
  std::string live_;
  std::optional<TimePoint> logged_at_;
};

}  // namespace lockstep::cli
