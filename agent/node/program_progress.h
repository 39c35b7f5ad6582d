#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/training_job.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::node {

// Parses the progress that a user's program reports. It writes JSON objects, one per line, to the
// file named by LOCKSTEP_PROGRESS_FILE, with any of the numbers whose row in step_number_table.h
// says `from_command`:
//   {"step": 12, "steps": 100, "loss": 3.25, "validationLoss": 3.5, "samples": 384, "tokens":
//   49152}
// samples and tokens count from step 0. Other members are ignored.
//
// The input is arbitrary. Each line updates the numbers that it contains; a loss that is null, NaN
// or infinite (as Python's json writes them) is cleared. A line is counted as rejected and ignored
// if it is not a JSON object, is too long, or has a known member of the wrong type or out of range.
class ProgressLines {
 public:
  static constexpr size_t kLineBytesMax = 16 * 1024;

  void append(std::string_view chunk);
  // Discards the partial line, because the next chunk does not continue it. `is_inside_line`: the
  // next chunk begins inside a line, so skip up to the next line.
  void restart(bool is_inside_line);

  const StepNumbers& last() const { return last_; }
  uint64_t accepted() const { return accepted_; }
  uint64_t rejected() const { return rejected_; }

 private:
  void end_line();
  bool parse_line(std::string_view line);

  std::string partial_;
  bool skipping_line_ = false;  // skipping the rest of a rejected line
  StepNumbers last_;
  uint64_t accepted_ = 0;
  uint64_t rejected_ = 0;
};

// Follows the progress file of one rank. If the file is truncated or replaced, starts again from
// its beginning. Never blocks, even if the path is not a regular file. If the writer gets too far
// ahead of the reader, skips to near the end.
class ProgressFile {
 public:
  explicit ProgressFile(std::string path) : path_(std::move(path)) {}

  // Replaces the file by an empty one.
  Status reset();
  // Reads new data, a bounded amount per call. Returns whether there was any.
  bool poll();
  const ProgressLines& lines() const { return lines_; }

 private:
  std::string path_;
  uint64_t inode_ = 0;
  int64_t offset_ = 0;
  ProgressLines lines_;
};

// The rate at which a count grows, over the last seconds. Starts again when the count falls.
class GrowthRate {
 public:
  void add(int64_t count, TimePoint now);
  std::optional<double> per_second() const;

 private:
  struct Point {
    TimePoint at;
    int64_t count = 0;
  };
  std::deque<Point> points_;
};

// Combines the numbers of a node's ranks, lowest rank first. Samples, tokens and their rates are
// summed; the others are those of the lowest rank that reported a step or a loss.
ProgressStatus progress_of_node(const std::vector<StepNumbers>& ranks, WallTime wall);

}  // namespace lockstep::node
