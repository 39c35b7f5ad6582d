#include "agent/train/data/batch_loader.h"

#include <algorithm>

namespace lockstep::train {
BatchLoader::BatchLoader(const SampleSource& source, const BatchLoaderOptions& options)
    : source_(source),
      options_(options),
      reader_([this](std::stop_token stop) { read_ahead(stop); }) {}

BatchLoader::~BatchLoader() = default;

Status BatchLoader::fill(uint64_t index, SampleBatch& batch) const {
  const BatchShape& shape = options_.shape;
  const auto micro_batch = static_cast<int64_t>(index);
  const int64_t step = micro_batch / shape.accumulation;
  const int64_t rows = shape.rows(micro_batch % shape.accumulation, options_.data_rank);
  batch.reset(source_.design(), rows);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t sample = global_sample(shape, {.first = options_.position + step * shape.global(),
                                                 .micro_index = micro_batch % shape.accumulation,
                                                 .rank = options_.data_rank,
                                                 .row = row});
    TRY(source_.read_training({.index = sample, .seed = options_.seed}, row, batch));
  }
  return {};
}

void BatchLoader::read_ahead(std::stop_token stop) {
  for (uint64_t index = 0;; ++index) {
    {
      // The slot of the batch that was taken last stays the caller's.
      std::unique_lock lock(mutex_);
      const auto free = [&] { return index + 1 < std::max<uint64_t>(taken_, 1) + kSlots; };
      if (!changed_.wait(lock, stop, free)) return;
    }
    Status status = fill(index, slots_[index % kSlots]);
    std::lock_guard lock(mutex_);
    if (status.ok()) {
      produced_ = index + 1;
    } else {
      failure_ = std::move(status);
    }
    changed_.notify_all();
    if (!failure_.ok()) return;
  }
}

Result<const SampleBatch*> BatchLoader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return produced_ > taken_ || !failure_.ok(); });
  if (produced_ <= taken_) return failure_.error();
  const SampleBatch* batch = &slots_[taken_ % kSlots];
  ++taken_;
  changed_.notify_all();
  return batch;
}

}  // namespace lockstep::train
