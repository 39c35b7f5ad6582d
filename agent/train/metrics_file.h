#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "agent/train/checkpoint/file_io.h"
#include "common/api/step_numbers.h"
#include "common/base/result.h"

namespace lockstep::train {

// metrics.jsonl: one JSON object a line, in ascending steps: the numbers of a step, or the loss of
// its validation. Lines reach the file with every call; they are not synced.
class MetricsFile {
 public:
  // Opens or makes the file and cuts it back to what a run that goes on after `step` won't write
  // again. `validates_again`: that includes the validation of this step.
  static Result<MetricsFile> open(const std::string& path, int64_t step,
                                  bool validates_again = true);

  // Returns the step of the last line that open() found, and left; 0 without one.
  int64_t last_step() const { return last_step_; }

  // Adds a line with those numbers that the table puts there. One that is unknown or not finite is
  // left out. A line that can't be written is lost: the first such loss is logged.
  void add(const StepNumbers& numbers);

 private:
  MetricsFile(File file, uint64_t bytes, int64_t last_step)
      : file_(std::move(file)), bytes_(bytes), last_step_(last_step) {}

  void remove_half_line(uint64_t bytes_max);

  File file_;
  uint64_t bytes_;  // of whole lines
  int64_t last_step_;
  bool has_lost_lines_ = false;
};

// The text's longest prefix of whole lines of steps up to `step`. That step's own validation, which
// comes after its checkpoint, does not belong to it if it is made again.
struct MetricsPrefix {
  size_t bytes = 0;
  int64_t last_step = 0;  // of its last line; 0 without one
};
MetricsPrefix metrics_prefix(std::string_view text, int64_t step, bool validates_again = true);

}  // namespace lockstep::train
