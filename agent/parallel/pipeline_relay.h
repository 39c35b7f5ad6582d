#pragma once

#include "agent/comm/communicator.h"
#include "agent/model/stage_relay.h"
#include "agent/parallel/stage_links.h"

namespace lockstep::parallel {

// Moves evaluating micro-batches between this rank's stage and its neighbours. One thread.
class PipelineRelay final : public model::StageRelay {
 public:
  // `stages`: the ranks of the pipeline, by stage. Both outlive the relay.
  PipelineRelay(const StageLinks& links, comm::Communicator& stages)
      : links_(links), stages_(stages) {}

  Status receive(model::MicroBatch& batch) override;
  Status send(const model::MicroBatch& batch) override;
  Result<int32_t> share(int32_t token) override;

 private:
  const StageLinks& links_;
  comm::Communicator& stages_;
};

}  // namespace lockstep::parallel
