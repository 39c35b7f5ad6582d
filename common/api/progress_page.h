#pragma once

#include <cstdint>

#include "common/api/agent_messages.h"
#include "common/api/collective_board.h"
#include "common/api/gpu_numbers.h"
#include "common/base/result.h"
#include "common/base/sequence_lock.h"

namespace lockstep {

// The precision in which the ranks multiply matrices, once they have agreed on it.
enum class PrecisionInUse : uint16_t { kUnknown, kFp32, kBf16 };

// One worker's numbers, written by the worker at phase changes and after every step, read by its
// agent. Plain values; loss and validation_loss are NaN while unknown.
struct ProgressNumbers {
  uint64_t round = 0;
  WorkerPhase phase = WorkerPhase::kStarting;
  PrecisionInUse precision = PrecisionInUse::kUnknown;
  uint16_t lacks_bf16 = 0;  // 1: this rank's device can't multiply bf16
  int64_t step = 0;         // optimizer steps done
  int64_t steps = 0;
  int64_t tokens = 0;   // trained on by the whole job since step 0
  int64_t samples = 0;  // sequences, likewise
  double loss = 0;
  double validation_loss = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  double tokens_per_second = 0;  // of the whole job, smoothed over the last steps
  // Seconds of the last step, by part; communication is what backward did not hide.
  double data_seconds = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double communication_seconds = 0;
  double update_seconds = 0;
  double step_seconds = 0;
  int64_t checkpoint_step = -1;        // newest complete one in storage; -1: none
  int64_t suspect_rank = -1;           // blamed by the communicator
  double first_step_unix_seconds = 0;  // wall clock at the end of the round's first step
  // FLOP/s of the whole job, smoothed like the tokens; 0 while unknown. First the model's, by the
  // formula of that name (FlopsFormula), then the peak of the devices.
  double palm_flops_per_second = 0;
  double causal_flops_per_second = 0;
  double datasheet_flops_per_second = 0;
  double measured_flops_per_second = 0;
};

// Returns the share of the peak that a job reaches; NaN if either number is unknown.
double flops_ratio(double flops_per_second, double peak_flops_per_second);

// The part of a worker's page that describes its GPU. Any thread may write, one at a time.
class GpuBoard {
 public:
  explicit GpuBoard(SequenceLocked<GpuNumbers>* numbers) : numbers_(numbers) {}

  void write(const GpuNumbers& numbers) { numbers_->write(numbers); }
  bool read(GpuNumbers& numbers) const { return numbers_->read(numbers); }

 private:
  SequenceLocked<GpuNumbers>* numbers_;
};

// A memfd of one page, created by the agent and inherited by descriptor. It holds ProgressNumbers
// under a sequence lock, then GpuNumbers under another one, then the communicator's board.
class ProgressPage {
 public:
  // Agent's side: creates a zeroed memfd (close-on-exec off).
  static Result<ProgressPage> create();
  // Worker's side: maps an inherited descriptor; kInvalid if it isn't such a page.
  static Result<ProgressPage> attach(int fd);

  ProgressPage(ProgressPage&& other) noexcept;
  ProgressPage& operator=(ProgressPage&& other) noexcept;
  ~ProgressPage();

  int fd() const { return fd_; }
  void write(const ProgressNumbers& numbers);
  // Reads the last complete write. Returns false, with `numbers` unchanged, if the writer is in the
  // middle of a write (or died there) after a bounded number of tries.
  bool read(ProgressNumbers& numbers) const;
  // Both stay valid while the page is mapped, even if this object moves.
  CollectiveBoard board() const;
  GpuBoard gpu() const;

 private:
  struct Layout;
  ProgressPage(int fd, Layout* page) : fd_(fd), page_(page) {}

  int fd_ = -1;
  Layout* page_ = nullptr;
};

}  // namespace lockstep
