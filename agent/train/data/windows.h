#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace lockstep::train {

// How a run of tokens is cut into sequences: pure arithmetic, the same on every rank.
//
// Tokens [0, train_tokens) are trained on, [train_tokens, tokens) are the validation part.
struct DataSplit {
  int64_t tokens = 0;
  int64_t train_tokens = 0;
  int64_t context = 0;

  int64_t validation_tokens() const { return tokens - train_tokens; }
  // Whole training windows of context inputs and as many targets, of which context - 1 tokens
  // overlap: each token is a target once an epoch, but for less than `context` of them.
  int64_t train_windows() const { return (train_tokens - 1) / context; }
  // Each validation token is the target of one place in one window, the last one may be partial;
  // the first one is predicted from the last training token.
  int64_t validation_windows() const { return (validation_tokens() + context - 1) / context; }

  bool operator==(const DataSplit&) const = default;
};

struct DataSplitInput {
  int64_t tokens = 0;
  int64_t context = 0;
  double validation_fraction = 0;  // of the tokens, rounded to the nearest
};

// kInvalid, naming `path` and blaming the data, where the training part is shorter than one window
// of context + 1, or where a fraction above 0 is less than half a token.
Result<DataSplit> split_data(const DataSplitInput& input, const std::string& path);

// Where the window of the index-th sample (counted over the whole training, all ranks and epochs)
// begins. Every epoch is a permutation of all windows by the seed, shifted by as many tokens as its
// seed says and the remainder allows. A pure function: the order of samples depends neither on the
// world size nor on what was read before.
int64_t train_window_begin(const DataSplit& split, int64_t sample, uint64_t seed);

// Inputs begin at `begin`, targets one later; `count` <= context of them are there.
struct Window {
  int64_t begin = 0;
  int64_t count = 0;
};
Window validation_window(const DataSplit& split, int64_t index);

// How the ranks share the samples of a step. Every rank has the same number of micro-batches. If
// the samples cannot be shared evenly, some micro-batches have a row less than others, but never
// none.
struct BatchShape {
  int64_t micro = 1;         // most rows of a micro-batch
  int64_t accumulation = 1;  // micro-batches of a step on one rank
  int64_t data_size = 1;     // ranks that share a step
  int64_t samples = 0;       // of a step; 0: all micro-batches have `micro` rows

  int64_t global() const { return samples > 0 ? samples : micro * accumulation * data_size; }
  // Returns the rows of a micro-batch on a data rank.
  int64_t rows(int64_t micro_index, int64_t rank) const;
  bool operator==(const BatchShape&) const = default;
};
// Which sample of the global order is row `row` of micro-batch `micro_index` on data rank `rank`,
// where `first` is the first sample of the step.
struct SamplePosition {
  int64_t first = 0;
  int64_t micro_index = 0;
  int64_t rank = 0;
  int64_t row = 0;
};
int64_t global_sample(const BatchShape& shape, const SamplePosition& place);

}  // namespace lockstep::train
