#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/api/step_numbers.h"

namespace lockstep::cli {

// Follows a metrics.jsonl while it is written: one JSON object per line, with `step` and either the
// numbers of a training step or a `validationLoss`. A restart of the job truncates the file;
// repeated steps then replace the earlier values.
class MetricsReader {
 public:
  explicit MetricsReader(std::string file) : file_(std::move(file)) {}

  // Reads what was added since the last call. Starts over if the file was truncated or replaced.
  // Keeps incomplete lines for the next call.
  void poll();
  // Reads the whole file again, for its final content.
  void reread();

  const std::map<int64_t, double>& losses() const { return losses_; }
  const std::map<int64_t, double>& validation_losses() const { return validation_losses_; }
  // The newest numbers of training steps, without validation.
  const StepNumbers& newest() const { return newest_; }
  // Median over all steps; 0 without steps.
  double median_tokens_per_second() const;

 private:
  void take_line(const std::string& line);

  std::string file_;
  uint64_t inode_ = 0;
  uint64_t offset_ = 0;
  std::string rest_;  // beginning of an incomplete line
  std::map<int64_t, double> losses_;
  std::map<int64_t, double> validation_losses_;
  std::map<int64_t, double> rates_;
  StepNumbers newest_;
};

}  // namespace lockstep::cli
