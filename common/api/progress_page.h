#pragma once

#include <cstdint>

#include "common/api/agent_messages.h"
#include "common/api/collective_board.h"
#include "common/api/gpu_numbers.h"
#include "common/api/step_numbers.h"
#include "common/api/storage_notes.h"
#include "common/base/result.h"
#include "common/base/sequence_lock.h"

namespace lockstep {

// The precision in which the ranks multiply matrices, once they have agreed on it.
enum class PrecisionInUse : uint16_t { kUnknown, kFp32, kBf16 };

// Bytes that this rank has allocated for the model's state and a step. 0: none, or not yet.
struct Holdings {
  uint64_t parameters_bytes = 0;
  uint64_t gradients_bytes = 0;
  uint64_t optimizer_bytes = 0;
  uint64_t gathered_bytes = 0;  // parameters of other ranks and gradients of units
  uint64_t activations_bytes = 0;
  uint64_t offloaded_bytes = 0;  // outside of the device's memory
  int64_t sharding_ranks = 0;    // ranks that divide what is sharded; 0: not allocated yet

  bool operator==(const Holdings&) const = default;
};

// One worker's numbers, written by the worker at phase changes, with every micro-batch and after
// every step, read by its agent. Plain values.
struct ProgressNumbers : StepNumbers {
  uint64_t round = 0;
  WorkerPhase phase = WorkerPhase::kStarting;
  PrecisionInUse precision = PrecisionInUse::kUnknown;
  uint16_t lacks_bf16 = 0;             // 1: this rank's device can't multiply bf16
  int64_t checkpoint_step = -1;        // newest complete one in storage; -1: none
  int64_t suspect_rank = -1;           // blamed by the communicator
  double first_step_unix_seconds = 0;  // wall clock at the end of the round's first step
  Holdings holdings;
  int64_t micro_batch = -1;  // of the step, whose pass it issued last; -1: none
  int64_t servers_view = 0;  // the newest view of the servers that it follows; 0: none yet
  uint64_t is_filling = 0;   // 1: a server that is filling the one that joins

  bool operator==(const ProgressNumbers&) const = default;
};

// The part of a worker's page that describes its GPU. Any thread may write, one at a time.
class GpuBoard {
 public:
  explicit GpuBoard(SequenceLocked<GpuNumbers>* numbers) : numbers_(numbers) {}

  void write(const GpuNumbers& numbers) { numbers_->write(numbers); }
  bool read(GpuNumbers& numbers) const { return numbers_->read(numbers); }

 private:
  SequenceLocked<GpuNumbers>* numbers_;
};

// The part of a worker's page that describes the job's checkpoints in storage. Any thread may
// write, one at a time.
class StorageBoard {
 public:
  explicit StorageBoard(SequenceLocked<StorageNotes>* notes) : notes_(notes) {}

  void write(const StorageNotes& notes) { notes_->write(notes); }
  bool read(StorageNotes& notes) const { return notes_->read(notes); }

 private:
  SequenceLocked<StorageNotes>* notes_;
};

// A memfd of two pages, created by the agent and inherited by descriptor. It holds ProgressNumbers,
// GpuNumbers and StorageNotes, each under its own sequence lock, then the communicator's board.
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
  // All of them stay valid while the page is mapped, even if this object moves.
  CollectiveBoard board() const;
  GpuBoard gpu() const;
  StorageBoard storage() const;

 private:
  struct Layout;
  ProgressPage(int fd, Layout* page) : fd_(fd), page_(page) {}

  int fd_ = -1;
  Layout* page_ = nullptr;
};

}  // namespace lockstep
