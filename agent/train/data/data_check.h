#pragma once

#include <cstdint>
#include <functional>

#include "agent/train/data/table_source.h"
#include "agent/train/data/token_source.h"
#include "common/base/result.h"

namespace lockstep::train {

struct DataCheckLimits {
  int64_t bytes_max = 64 << 20;  // read at most; longer data is sampled
  int64_t blocks = 64;           // of a sample: at least 2
};

// These look for values that no rank could train with. They read all of the data, or, of longer
// data, equal blocks at equal distances, its beginning and its end among them. kInvalid, with file
// and place; if only a sample was read, the message says so.

// Looks for token ids that are not in the vocabulary. Reads nothing if every id of that width is in
// the vocabulary.
Status check_tokens(const TokenSource& source, const DataCheckLimits& limits = {});

// Looks for numbers that are not finite, and for classes that the model does not have.
Status check_samples(const TableSource& source, const DataCheckLimits& limits = {});

// Calls check(index) for images of `bytes` bytes each.
Status check_images(int64_t count, int64_t bytes, const std::function<Status(int64_t)>& check,
                    const DataCheckLimits& limits = {});

}  // namespace lockstep::train
