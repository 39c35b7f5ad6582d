#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "agent/train/data/token_source.h"
#include "agent/train/data/windows.h"
#include "common/base/result.h"

namespace lockstep::train {

// Row-major [rows, context]; a target of -1 is not counted.
struct TokenBatch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  int64_t rows = 0;
  int64_t counted = 0;  // targets that are counted
};
// Returns the memory of a batch of that shape.
uint64_t token_batch_bytes(int64_t rows, int64_t context);

struct BatchLoaderOptions {
  BatchShape shape;
  int64_t data_rank = 0;
  uint64_t seed = 1;
  int64_t position = 0;  // samples of the whole job that are done: where to go on
};

// The micro-batches of one rank in their order, read ahead by a thread of its own. The source
// outlives the loader.
class BatchLoader {
 public:
  BatchLoader(const TokenSource& source, const DataSplit& split, const BatchLoaderOptions& options);
  ~BatchLoader();

  static constexpr uint64_t kSlots = 4;  // batches that it keeps

  // The next micro-batch, valid until the next call; waits for the reader. The reader's error, if
  // it met one, in its turn.
  Result<const TokenBatch*> next();

 private:
  void read_ahead(std::stop_token stop);
  Status fill(uint64_t index, TokenBatch& batch) const;

  const TokenSource& source_;
  const DataSplit split_;
  const BatchLoaderOptions options_;
  TokenBatch slots_[kSlots];
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Micro-batch i is in slot i % kSlots from produced_ > i until taken_ > i + 1.
  uint64_t produced_ = 0;
  uint64_t taken_ = 0;
  Status failure_;
  std::jthread reader_;  // last: it uses all of the above
};

// Validation windows [first, first + rows) as a batch, those past the end and the tail of a
// partial one filled with targets of -1.
Status read_validation(const TokenSource& source, const DataSplit& split, int64_t first,
                       int64_t rows, TokenBatch& batch);

}  // namespace lockstep::train
