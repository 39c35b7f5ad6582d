#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "agent/train/data/sample_source.h"
#include "agent/train/data/windows.h"
#include "common/base/result.h"

namespace lockstep::train {

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
  BatchLoader(const SampleSource& source, const BatchLoaderOptions& options);
  ~BatchLoader();

  static constexpr uint64_t kSlots = 4;  // batches that it keeps

  // The next micro-batch, valid until the next call; waits for the reader. The reader's error, if
  // it met one, in its turn.
  Result<const SampleBatch*> next();

 private:
  void read_ahead(std::stop_token stop);
  Status fill(uint64_t index, SampleBatch& batch) const;

  const SampleSource& source_;
  const BatchLoaderOptions options_;
  SampleBatch slots_[kSlots];
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Micro-batch i is in slot i % kSlots from produced_ > i until taken_ > i + 1.
  uint64_t produced_ = 0;
  uint64_t taken_ = 0;
  Status failure_;
  std::jthread reader_;  // last: it uses all of the above
};

}  // namespace lockstep::train
