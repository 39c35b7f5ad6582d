#pragma once

#include <cstdint>

#include "agent/train/data/token_source.h"
#include "common/base/result.h"

namespace lockstep::train {

struct TokenCheckLimits {
  int64_t bytes_max = 64 << 20;  // read at most; longer data is sampled
  int64_t blocks = 64;           // of a sample: at least 2
};

// Looks for token ids that are not in the vocabulary. Reads all tokens, or, of longer data, equal
// blocks at equal distances, the first and the last tokens among them. Reads nothing if every id of
// that width is in the vocabulary. kInvalid, with file and offset; if only a sample was read, the
// message says so.
Status check_tokens(const TokenSource& source, const TokenCheckLimits& limits = {});

}  // namespace lockstep::train
