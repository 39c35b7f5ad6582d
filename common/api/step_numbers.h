#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

// The numbers of a training step, each absent while it is unknown. step_number_table.h says where
// each of them appears. Trivially copyable, so that it can be kept in shared memory.
struct StepNumbers {
  std::optional<int64_t> step;     // completed optimizer steps
  std::optional<int64_t> steps;    // of the whole job
  std::optional<int64_t> tokens;   // trained on by the whole job since step 0
  std::optional<int64_t> samples;  // sequences, likewise
  // The loss is the mean over the global batch, the validation loss over all held-back data.
  std::optional<double> loss;
  std::optional<double> validation_loss;
  std::optional<double> validation_loss_per_byte;  // of a text: nats / bytes of the held-back text
  std::optional<double> validation_accuracy;       // of a classification: right answers / all
  std::optional<double> validation_top5_accuracy;  // of images: right among the 5 likeliest / all
  std::optional<double> validation_auc;            // of clicks: area under the ROC curve
  std::optional<double> learning_rate;
  std::optional<double> gradient_norm;  // before clipping
  // Rates of the whole job over the last steps.
  std::optional<double> tokens_per_second;
  std::optional<double> samples_per_second;
  // The model's FLOP/s of the whole job, by the formulas of common/layout/cost.h, and their share
  // of what its devices can do in bf16, by datasheet and as measured (MFU). Recomputed operations
  // do not count.
  std::optional<double> palm_flops_per_second;
  std::optional<double> causal_flops_per_second;
  std::optional<double> palm_mfu;
  std::optional<double> causal_mfu;
  std::optional<double> palm_mfu_of_measured;
  std::optional<double> causal_mfu_of_measured;
  // Seconds of one step by part. Forward includes the head's logits and losses, which are computed
  // chunk by chunk during backward, and the gradients of the logits, which the losses' operation
  // also computes. Communication is what backward did not hide. On a GPU the parts are times of the
  // stream that computes (step_timer.h). The step's own seconds are the host's, and longer than all
  // parts by the time that the host needs to learn the results and to tell the other ranks. On the
  // CPU that time counts as communication.
  std::optional<double> data_seconds;
  std::optional<double> forward_seconds;
  std::optional<double> backward_seconds;
  std::optional<double> communication_seconds;
  std::optional<double> update_seconds;
  std::optional<double> step_seconds;
  // If workers of a job with servers need not keep step: the worker that has completed the fewest
  // steps (of several, the lowest rank), and their number.
  std::optional<int64_t> slowest_worker;
  std::optional<int64_t> slowest_worker_step;
  std::optional<int64_t> server_rows;  // of all tables on a server

  bool operator==(const StepNumbers&) const = default;
};

}  // namespace lockstep
