#include "agent/train/data/token_windows.h"

#include <algorithm>

#include "agent/train/data/data_check.h"

namespace lockstep::train {

TokenWindows::TokenWindows(const TokenSource& source, const DataSplit& split)
    : source_(source), split_(split), design_(batch_design(ModelConfig(), split.context)) {}

std::string TokenWindows::size() const {
  return std::to_string(source_.count()) + " tokens";
}

Status TokenWindows::check() const {
  return check_tokens(source_);
}

Status TokenWindows::read_training(const TrainingSample& sample, int64_t row,
                                   SampleBatch& batch) const {
  const int64_t begin = train_window_begin(split_, sample.index, sample.seed);
  return read({begin, split_.context}, row, batch);
}

Status TokenWindows::read_validation(int64_t first, int64_t rows, SampleBatch& batch) const {
  batch.reset(design_, rows);
  std::ranges::fill(batch.values<int32_t>(kTargets), -1);
  const int64_t end = std::min(first + rows, split_.validation_windows());
  for (int64_t index = first; index < end; ++index) {
    TRY(read(validation_window(split_, index), index - first, batch));
  }
  return {};
}

// Leaves the tail of a partial window as it is.
Status TokenWindows::read(const Window& window, int64_t row, SampleBatch& batch) const {
  const auto count = static_cast<size_t>(window.count);
  TRY(source_.read(window.begin, batch.row<int32_t>(kTokens, row).first(count)));
  TRY(source_.read(window.begin + 1, batch.row<int32_t>(kTargets, row).first(count)));
  batch.count(window.count);
  return {};
}

}  // namespace lockstep::train
