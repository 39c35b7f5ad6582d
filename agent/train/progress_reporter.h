#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "agent/comm/communicator.h"
#include "common/api/progress_page.h"

namespace lockstep::train {

// This rank's numbers for its agent. One thread, but for show_view().
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

  // Publishes the view of the servers that this process follows, with what is published already.
  // From any thread.
  void show_view(int64_t number, bool is_filling);
  bool shows_filling() const;

  // Like numbers() and publish(), for the checkpoints in storage. Only rank 0 reports them.
  StorageNotes& storage() { return storage_; }
  void publish_storage();

 private:
  void write();

  std::optional<ProgressPage> page_;
  std::optional<CollectiveBoard> board_;
  const comm::Communicator* world_ = nullptr;
  ProgressNumbers numbers_;
  StorageNotes storage_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  ProgressNumbers published_;
  int64_t servers_view_ = 0;
  bool is_filling_ = false;
};

}  // namespace lockstep::train
