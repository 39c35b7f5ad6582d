#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "agent/parallel/rank_store.h"
#include "agent/parallel/remote_parameters.h"
#include "agent/parallel/replicated_store.h"
#include "common/base/result.h"

namespace lockstep::parallel {

// A rank's copy of parameters that servers hold. After a step all of them are pulled for the next
// one; a block waits for its own when it is next used, so the rest travels during forward. One
// thread.
class PulledStore final : public RankStore {
 public:
  // `remote` and the memory outlive the store.
  PulledStore(const ReplicatedStoreOptions& options, RemoteParameters& remote);

  // Called with the pass before and after a wait for servers; empty: nobody is told.
  void observe_waits(std::function<void(model::Pass pass, bool begins)> observer) {
    observer_ = std::move(observer);
  }

  void prefetch(const model::BlockUse&) override {}
  Result<std::span<const model::ParamView>> get(const model::BlockUse& use) override;
  void release(const model::BlockUse&) override {}
  Status updated(int64_t step) override;
  Status settle() override;

 private:
  Status finish(int64_t id);

  ReplicatedStore replica_;
  RemoteParameters& remote_;
  std::vector<std::vector<int64_t>> ids_;  // by block of the model
  std::vector<bool> is_coming_;            // by id
  std::function<void(model::Pass, bool)> observer_;
};

}  // namespace lockstep::parallel
