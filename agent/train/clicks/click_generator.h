#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace lockstep::train {

// A click log that is drawn from a known logistic regression, so the best possible log loss is
// known. Columns of categories have keys / 2, keys / 4, ... categories, at least 10. Their
// frequencies follow Zipf's law with exponent 1.1. The weights of a column with n categories are
// normal numbers with variance 0.25 min(1, 1000 / n).
struct ClickGeneratorOptions {
  std::string path;  // of the file, in the criteo format; replaced
  int64_t rows = 0;
  int64_t keys = 0;  // categories of all columns together, about
  uint64_t seed = 1;
};

struct GeneratedClicks {
  int64_t rows = 0;
  int64_t clicks = 0;
  // -log of the true probability of the labels, mean over all rows and over the last tenth of them.
  double log_loss = 0;
  double log_loss_of_last_tenth = 0;
};

// A pure function of the options but for the file. Errors blame the data.
Result<GeneratedClicks> generate_clicks(const ClickGeneratorOptions& options);

}  // namespace lockstep::train
