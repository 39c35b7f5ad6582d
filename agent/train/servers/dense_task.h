#pragma once

#include <memory>
#include <optional>

#include "agent/comm/communicator.h"
#include "agent/parallel/compose.h"
#include "agent/train/data/batch_loader.h"
#include "agent/train/data/open_data.h"
#include "agent/train/servers/client_parameters.h"
#include "agent/train/servers/served_task.h"
#include "agent/train/train_step.h"
#include "agent/train/validator.h"
#include "common/base/result.h"
#include "common/layout/model_design.h"

namespace lockstep::train {

// A model whose tensors are all on servers: a Composition of one rank that pulls and pushes.
// Workers share the samples of a step as data-parallel ranks do.
class DenseTask final : public ServedTask {
 public:
  // Errors blame the data or the configuration.
  static Result<std::unique_ptr<ServedTask>> open(const Parts& parts);
  ~DenseTask() override;

  RunSettings settings() const override;
  int64_t tokens_per_sample() const override;
  Status begin_anew() override;
  Status begin_at(int64_t step) override;
  Result<Outcome> train(const Step& step) override;
  bool validates() const override { return data_.samples->validation_samples() > 0; }
  Status validate(int64_t step, StepNumbers& numbers) override;
  Status finish(int64_t step) override;

 private:
  explicit DenseTask(const Parts& parts);
  Status build();

  Parts parts_;
  const TrainSpec& train_;
  ModelDesign design_;
  BatchShape batch_;
  OpenedData data_;
  std::unique_ptr<comm::Communicator> alone_;  // a world of this rank
  ClientParameters remote_;
  std::unique_ptr<parallel::Composition> model_;
  std::optional<BatchLoader> loader_;
  std::optional<TrainStep> step_;
  std::optional<Validator> validator_;  // rank 0's
  int64_t terms_ = 0;                   // of the loss, of this rank in a step
};

}  // namespace lockstep::train
