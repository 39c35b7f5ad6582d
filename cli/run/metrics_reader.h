#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

// Follows a metrics.jsonl while it is written: one JSON object a line, with `step` and either the
// numbers of a training step or a `validationLoss`. A restart of the job cuts the file back; then
// later steps count anew.
class MetricsReader {
 public:
  explicit MetricsReader(std::string file) : file_(std::move(file)) {}

  // Reads what was added since; a file that was cut back or replaced is read from its start. Lines
  // that are not whole yet wait for the next call.
  void poll();
  // Everything from the start: what the file says in the end.
  void reread();

  const std::map<int64_t, double>& losses() const { return losses_; }
  const std::map<int64_t, double>& validation_losses() const { return validation_losses_; }
  int64_t last_step() const { return losses_.empty() ? 0 : losses_.rbegin()->first; }
  double tokens_per_second() const { return tokens_per_second_; }
  // Median over all steps; 0 without any.
  double median_tokens_per_second() const;

 private:
  void take_line(const std::string& line);

  std::string file_;
  uint64_t inode_ = 0;
  uint64_t offset_ = 0;
  std::string rest_;  // the beginning of a line whose end has not been written yet
  std::map<int64_t, double> losses_;
  std::map<int64_t, double> validation_losses_;
  std::map<int64_t, double> rates_;
  double tokens_per_second_ = 0;
};

}  // namespace lockstep
