#pragma once

#include <cstdint>
#include <optional>

#include "agent/parallel/compose.h"
#include "agent/train/data/device_feed.h"
#include "common/base/result.h"

namespace lockstep::train {

// Evaluates the validation part: every sample of it once, shared by the ranks. One thread.
class Validator {
 public:
  struct Options {
    int64_t rows = 1;  // samples of a micro-batch
    int64_t rank = 0;  // of `ranks` that share the samples
    int64_t ranks = 1;
  };
  // Model and source outlive it.
  static Result<Validator> create(const Options& options, parallel::Composition& model,
                                  const SampleSource& source);

  // Nothing where a rank was asked to stop meanwhile.
  Result<std::optional<parallel::Evaluation>> run();

 private:
  // A rank's samples of the validation part.
  class Samples final : public parallel::BatchFeed {
   public:
    explicit Samples(Validator& validator);
    Result<std::optional<parallel::DeviceBatch>> next() override;

   private:
    Validator& validator_;
    int64_t next_;  // the first sample of the next batch
  };

  Validator(const Options& options, parallel::Composition& model, const SampleSource& source,
            BatchSlot slot)
      : options_(options), model_(&model), source_(&source), slot_(std::move(slot)) {}

  Options options_;
  parallel::Composition* model_;
  const SampleSource* source_;
  BatchSlot slot_;
  SampleBatch batch_;
};

}  // namespace lockstep::train
