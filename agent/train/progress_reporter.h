#pragma once

#include <optional>

#include "agent/comm/communicator.h"
#include "common/api/progress_page.h"

namespace lockstep::train {

// This rank's numbers for its agent. One thread.
class ProgressReporter {
 public:
  // Without a page nothing is written.
  ProgressReporter(std::optional<ProgressPage> page, int64_t round);

  // Forgets everything of the round before; the page says so once something is published.
  void begin_round(int64_t round);

  // For the communicator; null without a page.
  CollectiveBoard* board() { return board_ ? &*board_ : nullptr; }
  // For what is said of the GPU; none without a page.
  std::optional<GpuBoard> gpu_board() const {
    return page_ ? std::optional(page_->gpu()) : std::nullopt;
  }
  // From now on its suspect is written too; it outlives the reporter or follow() is
  // called again with null.
  void follow(const comm::Communicator* world) { world_ = world; }

  // To be changed, then published.
  ProgressNumbers& numbers() { return numbers_; }
  const ProgressNumbers& numbers() const { return numbers_; }
  void publish();
  void enter(WorkerPhase phase);

  // Like numbers() and publish(), for the checkpoints in storage. Only rank 0 reports them.
  StorageNotes& storage() { return storage_; }
  void publish_storage();

 private:
  std::optional<ProgressPage> page_;
  std::optional<CollectiveBoard> board_;
  const comm::Communicator* world_ = nullptr;
  ProgressNumbers numbers_;
  StorageNotes storage_;
};

}  // namespace lockstep::train
