#include "agent/train/data/windows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/base/random.h"

namespace lockstep::train {
namespace {

// Divides `total` into parts, of which the first ones may have one more. Returns the size of a
// part, and what is before it.
int64_t part_of(int64_t total, int64_t parts, int64_t index) {
  return total / parts + (index < total % parts ? 1 : 0);
}
int64_t begin_of_part(int64_t total, int64_t parts, int64_t index) {
  return total / parts * index + std::min(index, total % parts);
}

}  // namespace

Result<DataSplit> split_data(const DataSplitInput& input, const std::string& path) {
  CHECK(input.context > 0);
  const auto validation = static_cast<int64_t>(
      std::llround(static_cast<double>(input.tokens) * input.validation_fraction));
  if (input.validation_fraction > 0 && validation == 0) {
    char fraction[32];
    std::snprintf(fraction, sizeof fraction, "%g", input.validation_fraction);
    return invalid("[data] " + path + ": " + std::to_string(input.tokens) +
                       " tokens are too few to hold back " + fraction + " of them for validation",
                   Blame::kData);
  }
  DataSplit split{input.tokens, input.tokens - validation, input.context};
  if (split.train_tokens <= input.context) {
    return invalid("[data] " + path + ": " + std::to_string(split.train_tokens) +
                       " training tokens are too few: a context of " +
                       std::to_string(input.context) + " needs at least " +
                       std::to_string(input.context + 1),
                   Blame::kData);
  }
  return split;
}

int64_t train_window_begin(const DataSplit& split, int64_t sample, uint64_t seed) {
  const auto windows = static_cast<uint64_t>(split.train_windows());
  const uint64_t epoch = static_cast<uint64_t>(sample) / windows;
  Random random(seed, epoch);
  const uint64_t order_seed = random.next_u64();
  const auto rest = static_cast<uint64_t>((split.train_tokens - 1) % split.context);
  const uint64_t shift = random.below(rest + 1);
  const uint64_t window = permute(static_cast<uint64_t>(sample) % windows, windows, order_seed);
  return static_cast<int64_t>(window * static_cast<uint64_t>(split.context) + shift);
}

Window validation_window(const DataSplit& split, int64_t index) {
  const int64_t target = split.train_tokens + index * split.context;
  return {target - 1, std::min(split.context, split.tokens - target)};
}

int64_t BatchShape::rows(int64_t micro_index, int64_t rank) const {
  return part_of(part_of(global(), accumulation, micro_index), data_size, rank);
}

int64_t global_sample(const BatchShape& shape, const SamplePosition& place) {
  const int64_t global = shape.global();
  const int64_t micro_batches = part_of(global, shape.accumulation, place.micro_index);  // of all
  return place.first + begin_of_part(global, shape.accumulation, place.micro_index) +
         begin_of_part(micro_batches, shape.data_size, place.rank) + place.row;
}

}  // namespace lockstep::train
