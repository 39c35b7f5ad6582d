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

namespace lockstep {

// What a user's program says of its progress: JSON objects, one a line, in the file that
// LOCKSTEP_PROGRESS_FILE names, with any of
//   {"step": 12, "steps": 100, "loss": 3.25, "validationLoss": 3.5, "samples": 384, "tokens":
//   49152}
// where samples and tokens count from step 0 on. Other members are passed over.
struct ProgramProgress {
  std::optional<int64_t> step;
  std::optional<int64_t> steps;
  std::optional<int64_t> samples;
  std::optional<int64_t> tokens;
  std::optional<double> loss;  // finite
  std::optional<double> validation_loss;

  bool operator==(const ProgramProgress&) const = default;
};

// Collects such lines, whatever comes: each brings the members that it has up to date; a loss that
// is null, NaN or infinite (as Python's json writes them) is forgotten. A line that is no JSON
// object, too long, or has a known member of another type or out of range is counted and passed
// over.
class ProgressLines {
 public:
  static constexpr size_t kLineBytesMax = 16 * 1024;

  void append(std::string_view chunk);
  // What follows is not the rest of the line begun: it is forgotten. `is_inside_line`: nor is it
  // the beginning of one, so it is passed over up to the next.
  void restart(bool is_inside_line);

  const ProgramProgress& last() const { return last_; }
  uint64_t taken() const { return taken_; }
  uint64_t refused() const { return refused_; }

 private:
  void end_line();
  bool take_line(std::string_view line);

  std::string partial_;
  bool passing_over_ = false;  // the rest of a line that is refused already
  ProgramProgress last_;
  uint64_t taken_ = 0;
  uint64_t refused_ = 0;
};

// Follows the file of one rank: what is added, a file cut back or replaced (then from its start).
// Never waits for anybody, also where it is no file at all; a writer that runs away from the reader
// is joined near the end.
class ProgressFile {
 public:
  explicit ProgressFile(std::string path) : path_(std::move(path)) {}

  // An empty file in place of what is there.
  Status reset();
  // Reads what has come, a bounded part of it at a time; whether there was any.
  bool poll();
  const ProgressLines& lines() const { return lines_; }

 private:
  std::string path_;
  uint64_t inode_ = 0;
  int64_t offset_ = 0;
  ProgressLines lines_;
};

// How fast a count grows, over the last seconds. One that falls begins anew.
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

struct RankProgress {
  ProgramProgress said;
  std::optional<double> samples_per_second;
  std::optional<double> tokens_per_second;
};

// What a node's ranks have said, lowest rank first: steps and losses are the lowest's that said
// any; samples, tokens and rates are added up.
ProgressStatus progress_of_node(const std::vector<RankProgress>& ranks, WallTime wall);

}  // namespace lockstep
