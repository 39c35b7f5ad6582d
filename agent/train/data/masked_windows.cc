#include "agent/train/data/masked_windows.h"

#include <algorithm>

#include "agent/train/data/data_check.h"
#include "common/base/random.h"

namespace lockstep::train {
namespace {

// Keeps the draws apart from others of the same seed: the order of samples, images' changes.
constexpr uint64_t kMaskSalt = 0x6D61736B65642121;
constexpr uint64_t kValidationSeed = 0;

// How many of ten predicted tokens are masked, and how many are drawn. The rest stays.
constexpr uint64_t kTenths = 10, kMaskedTenths = 8, kDrawnTenths = 1;

}  // namespace

MaskedWindows::MaskedWindows(const TokenSource& source, const MaskedWindowsOptions& options)
    : source_(source),
      options_(options),
      design_(batch_design(ModelConfig{.family = Family::kBert}, options.split.context)) {
  CHECK(options.mask_token >= 0 && options.mask_token < options.vocabulary);
}

std::string MaskedWindows::size() const {
  return std::to_string(source_.count()) + " tokens";
}

Status MaskedWindows::check() const {
  return check_tokens(source_);
}

Status MaskedWindows::read_training(const TrainingSample& sample, int64_t row,
                                    SampleBatch& batch) const {
  const int64_t begin = train_window_begin(options_.split, sample.index, sample.seed) + 1;
  return read({.begin = begin,
               .predicted = options_.split.context,
               .seed = sample.seed ^ kMaskSalt,
               .number = sample.index},
              row, batch);
}

MaskedWindows::MaskedWindow MaskedWindows::validation_window(int64_t index) const {
  const DataSplit& split = options_.split;
  const Window window = train::validation_window(split, index);
  return {.begin = window.begin + 1 + window.count - split.context,
          .predicted = window.count,
          .seed = kValidationSeed ^ kMaskSalt,
          .number = index};
}

Status MaskedWindows::read_validation(int64_t first, int64_t rows, SampleBatch& batch) const {
  batch.reset(design_, rows);
  for (int64_t row = 0; row < rows; ++row) {
    if (first + row < validation_samples()) {
      TRY(read(validation_window(first + row), row, batch));
      continue;
    }
    std::ranges::fill(batch.row<int32_t>(kTokens, row), 0);
    std::ranges::fill(batch.row<int32_t>(kTargets, row), -1);
  }
  return {};
}

Status MaskedWindows::read(const MaskedWindow& window, int64_t row, SampleBatch& batch) const {
  const std::span<int32_t> tokens = batch.row<int32_t>(kTokens, row);
  const std::span<int32_t> targets = batch.row<int32_t>(kTargets, row);
  TRY(source_.read(window.begin, tokens));
  std::ranges::fill(targets, -1);
  Random random(window.seed, static_cast<uint64_t>(window.number));
  const uint64_t order = random.next_u64();
  const int64_t count = masked_count(window.predicted);
  const int64_t first = std::ssize(tokens) - window.predicted;
  for (int64_t i = 0; i < count; ++i) {
    const auto place =
        permute(static_cast<uint64_t>(i), static_cast<uint64_t>(window.predicted), order);
    int32_t& token = tokens[static_cast<size_t>(first) + place];
    targets[static_cast<size_t>(first) + place] = token;
    const uint64_t fate = random.below(kTenths);
    const auto drawn =
        static_cast<int32_t>(random.below(static_cast<uint64_t>(options_.vocabulary)));
    if (fate < kMaskedTenths) {
      token = options_.mask_token;
    } else if (fate < kMaskedTenths + kDrawnTenths) {
      token = drawn;
    }
  }
  batch.count(count);
  return {};
}

}  // namespace lockstep::train
