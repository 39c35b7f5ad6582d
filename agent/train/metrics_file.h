#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "agent/train/checkpoint/file_io.h"
#include "common/base/result.h"

namespace lockstep::train {

// Seconds of one optimizer step by its five parts. Forward includes the head's logits and losses,
// which are computed chunk by chunk during backward, and the gradients of the logits, which the
// losses' operation also computes; communication is what backward did not hide. On a GPU the parts
// are those of the stream that computes, by its events (step_timer.h), and the total, the host's,
// is longer than all of them by what the host takes to learn the results and to tell them to the
// other ranks; on the CPU that counts as update.
struct StepSeconds {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double communication = 0;
  double update = 0;
  double total = 0;
};

// FLOPs of the model in a second, of the whole job, by the formulas of common/layout/cost.h, and
// what its devices could do; 0 while unknown. How much of it a run reaches is MFU, model FLOPs
// utilisation: what is recomputed does not count.
struct StepFlops {
  double palm = 0;
  double causal = 0;
  double datasheet_peak = 0;
  double measured_peak = 0;
};

struct StepMetrics {
  int64_t step = 0;  // counted from 1
  double loss = 0;   // mean over the global batch, nats a token
  double learning_rate = 0;
  double gradient_norm = 0;      // before clipping
  double tokens_per_second = 0;  // of the whole job, smoothed
  StepFlops flops;               // likewise
  StepSeconds seconds;
};

struct ValidationMetrics {
  int64_t step = 0;
  double loss = 0;  // mean over all validation tokens, nats a token
};

// metrics.jsonl: one JSON object a line, in ascending steps. A number that is not finite is left
// out. Lines reach the file with every call; they are not synced.
class MetricsFile {
 public:
  // Opens or makes the file and cuts it back to what a run that goes on after `step` won't write
  // again.
  static Result<MetricsFile> open(const std::string& path, int64_t step);

  Status add(const StepMetrics& metrics);
  Status add(const ValidationMetrics& metrics);

 private:
  explicit MetricsFile(File file) : file_(std::move(file)) {}

  File file_;
};

// Bytes of the text's longest prefix of whole lines of steps up to `step`, but for that step's own
// validation, which comes after its checkpoint and is made anew.
size_t metrics_prefix(std::string_view text, int64_t step);

}  // namespace lockstep::train
