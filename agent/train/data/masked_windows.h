#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "agent/train/data/sample_source.h"
#include "agent/train/data/token_source.h"
#include "agent/train/data/windows.h"

namespace lockstep::train {

struct MaskedWindowsOptions {
  DataSplit split;
  int64_t vocabulary = 0;
  int32_t mask_token = 0;  // below `vocabulary`
};

// The windows of a text (windows.h) as samples of a model that predicts masked tokens: `tokens`,
// some of them masked, and `targets`, which are -1 where none is predicted. A window has the tokens
// that are the targets of the same window in TokenWindows.
//
// masked_count() positions of each window are predicted: 80 % of these have the mask token, 10 % a
// token drawn from the whole vocabulary, and 10 % their own. Everything drawn is a function of the
// seed and the sample's number over all epochs, so an epoch masks other positions than the one
// before. In validation it is a function of the sample's number alone. Source: Devlin et al.,
// "BERT", 2019.
class MaskedWindows final : public SampleSource {
 public:
  // The source outlives it.
  MaskedWindows(const TokenSource& source, const MaskedWindowsOptions& options);

  const BatchDesign& design() const override { return design_; }
  std::string size() const override;
  int64_t validation_samples() const override { return options_.split.validation_windows(); }
  Status check() const override;
  Status read_training(const TrainingSample& sample, int64_t row,
                       SampleBatch& batch) const override;
  // Always has `rows` rows, of which those past the end do not count. The last window ends with the
  // text. If that makes it overlap the one before, only tokens that are not in that are predicted.
  Status read_validation(int64_t first, int64_t rows, SampleBatch& batch) const override;

  // Indices of the tensors.
  enum Tensor : size_t { kTokens, kTargets };

 private:
  // Tokens [begin, begin + context), of which the last `predicted` may be predicted.
  struct MaskedWindow {
    int64_t begin = 0;
    int64_t predicted = 0;
    uint64_t seed = 0;  // this and the number determine what is drawn
    int64_t number = 0;
  };
  Status read(const MaskedWindow& window, int64_t row, SampleBatch& batch) const;
  MaskedWindow validation_window(int64_t index) const;

  const TokenSource& source_;
  const MaskedWindowsOptions options_;
  const BatchDesign design_;
};

}  // namespace lockstep::train
