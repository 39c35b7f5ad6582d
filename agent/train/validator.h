#pragma once

#include <cstdint>
#include <optional>

#include "agent/parallel/compose.h"
#include "agent/train/data/batch_loader.h"
#include "agent/train/data/device_tokens.h"
#include "common/base/result.h"

namespace lockstep::train {

// The mean loss over the validation part: every token of it once, in windows of one context that
// the ranks share. One thread.
class Validator {
 public:
  struct Options {
    DataSplit split;
    int64_t rows = 1;  // of a micro-batch
    int64_t rank = 0;  // of `ranks` that share the windows
    int64_t ranks = 1;
  };
  // Model and source outlive it.
  static Result<Validator> create(const Options& options, parallel::Composition& model,
                                  const TokenSource& source);

  // Nats a token, the same bits on every rank; nothing where a rank was asked to stop meanwhile.
  Result<std::optional<double>> run();

 private:
  // A rank's windows of the validation part.
  class Windows final : public parallel::BatchFeed {
   public:
    explicit Windows(Validator& validator);
    Result<std::optional<parallel::DeviceBatch>> next() override;

   private:
    Validator& validator_;
    int64_t window_;  // the first of the next batch
  };

  Validator(const Options& options, parallel::Composition& model, const TokenSource& source,
            TokenSlot slot)
      : options_(options), model_(&model), source_(&source), slot_(std::move(slot)) {}

  Options options_;
  parallel::Composition* model_;
  const TokenSource* source_;
  TokenSlot slot_;
  TokenBatch batch_;
};

}  // namespace lockstep::train
