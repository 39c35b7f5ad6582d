#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/parallel/compose.h"
#include "agent/train/checkpoint/background.h"
#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/exchange.h"
#include "agent/train/checkpoint/shard_writer.h"
#include "agent/train/progress_reporter.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// Saves checkpoints while training goes on. A save goes through these phases on all ranks:
// - begin(), between two steps: every rank copies its share of the state
// - in the background every rank writes its files, reads them back and compares
// - commit(), after a step that began when no rank was busy: the ranks begin to exchange the names
//   and checksums of their files
// - poll(), after each step: once they are exchanged, rank 0 completes the checkpoint in the
//   background
// One save is under way at a time: begin() and finish() wait for the one before. A save that fails
// leaves nothing but a note for the agent, and training goes on, unless the storage has another
// owner: then this rank must stop. All ranks call begin(), commit() and finish(), in the same
// order. Ranks whose steps overlap may call commit() at different steps; it waits for no other
// rank. One thread.
class Saver {
 public:
  struct Parts {
    comm::Communicator& world;
    comm::Communicator& outcomes;  // all ranks, for the exchanges of saves alone
    parallel::Composition& model;  // with a reserved snapshot
    Storage& storage;
    CheckpointFolder* folder = nullptr;  // rank 0's
    ProgressReporter& progress;
    const Clock& clock;
  };
  // All of the parts outlive it. `table` names the model's tensors; `owner` is rank 0's.
  Saver(const Parts& parts, StateTable table, OwnerRecord owner)
      : parts_(parts), table_(std::move(table)), owner_(std::move(owner)) {}

  // Starts to save the state as it is now. The manifest lacks its files.
  Status begin(Manifest manifest);
  // Whether this rank is writing its files, or completing the save before.
  bool is_busy() const { return writing_.is_running() || publishing_.is_running(); }
  // Whether a save was begun and commit() was not called; the same on all ranks.
  bool awaits_commit() const { return manifest_.has_value() && !exchange_; }
  bool has_begun() const { return saves_ > 0; }
  // Begins to exchange the outcome of the save under way; waits if this rank is still writing.
  void commit();
  // Goes on with the exchange, and takes notice of a save that was completed. Errors are the
  // communicator's, and that the storage has another owner.
  Status poll();
  // Waits until nothing is under way. Returns the step of the newest complete save of this Saver,
  // the same on all ranks; -1: none.
  Result<int64_t> finish();

 private:
  Status write_files(const std::stop_token& stop);
  // Ends the save under way, if there is one; waits for the other ranks.
  Status end_exchange();
  Status start_publishing(std::function<Status()> task, int64_t step);
  void add_blocked(TimePoint since);
  Status abandon(const std::string& folder, const Status& cause);
  Status note_failure(int64_t step, const Error& error);
  void note_success(int64_t step);
  Status wait_for_publishing();

  Parts parts_;
  StateTable table_;
  OwnerRecord owner_;
  int64_t saves_ = 0;  // begun; part of the names of unfinished folders
  TimePoint begun_at_{};
  std::optional<Manifest> manifest_;  // of the save that is written or waits to be committed
  std::string folder_;                // unfinished, of that save
  std::vector<ManifestFile> written_;
  std::optional<OutcomeExchange> exchange_;  // of the save that was committed
  int64_t publishing_step_ = -1;
  TimePoint publishing_begun_at_{};  // when the snapshot of that save was taken
  int64_t saved_step_ = -1;          // rank 0's: newest that is complete
  Background writing_;
  Background publishing_;  // rank 0's
};

}  // namespace lockstep::train
