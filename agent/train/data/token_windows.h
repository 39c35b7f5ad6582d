#pragma once

#include <string>

#include "agent/train/data/sample_source.h"
#include "agent/train/data/token_source.h"
#include "agent/train/data/windows.h"

namespace lockstep::train {

// The windows of a text (windows.h) as samples: `tokens` and `targets`. Targets that do not count
// are -1.
class TokenWindows final : public SampleSource {
 public:
  // The source outlives it.
  TokenWindows(const TokenSource& source, const DataSplit& split);

  const BatchDesign& design() const override { return design_; }
  std::string size() const override;
  int64_t validation_samples() const override { return split_.validation_windows(); }
  Status check() const override;
  Status read_training(const TrainingSample& sample, int64_t row,
                       SampleBatch& batch) const override;
  // Always has `rows` rows; those past the end, and the tail of a partial window, do not count.
  Status read_validation(int64_t first, int64_t rows, SampleBatch& batch) const override;

  // Indices of the tensors.
  enum Tensor : size_t { kTokens, kTargets };

 private:
  Status read(const Window& window, int64_t row, SampleBatch& batch) const;

  const TokenSource& source_;
  const DataSplit split_;
  const BatchDesign design_;
};

}  // namespace lockstep::train
