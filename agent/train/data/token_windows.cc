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
  for (int64_t row = 0; row < rows; ++row) {
    const bool is_past_the_end = first + row >= split_.validation_windows();
    TRY(read(is_past_the_end ? Window() : validation_window(split_, first + row), row, batch));
  }
  return {};
}

// After a partial window, the row has tokens that every vocabulary has and targets that do not
// count.
Status TokenWindows::read(const Window& window, int64_t row, SampleBatch& batch) const {
  const auto count = static_cast<size_t>(window.count);
  const std::span<int32_t> tokens = batch.row<int32_t>(kTokens, row);
  const std::span<int32_t> targets = batch.row<int32_t>(kTargets, row);
  TRY(source_.read(window.begin, tokens.first(count)));
  TRY(source_.read(window.begin + 1, targets.first(count)));
  std::ranges::fill(tokens.subspan(count), 0);
  std::ranges::fill(targets.subspan(count), -1);
  batch.count(window.count);
  return {};
}

}  // namespace lockstep::train
