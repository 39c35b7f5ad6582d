#include "agent/train/data/batch_loader.h"

#include <algorithm>

namespace lockstep::train {
namespace {

void shape_batch(TokenBatch& batch, int64_t rows, int64_t context) {
  batch.rows = rows;
  batch.counted = 0;
  batch.tokens.assign(static_cast<size_t>(rows * context), 0);
  batch.targets.assign(static_cast<size_t>(rows * context), -1);
}

struct Row {
  int64_t row = 0;
  Window window;
};

Status fill_row(const TokenSource& source, int64_t context, const Row& row, TokenBatch& batch) {
  const auto at = static_cast<size_t>(row.row * context);
  const auto count = static_cast<size_t>(row.window.count);
  TRY(source.read(row.window.begin, std::span(batch.tokens).subspan(at, count)));
  TRY(source.read(row.window.begin + 1, std::span(batch.targets).subspan(at, count)));
  batch.counted += row.window.count;
  return {};
}

}  // namespace

uint64_t token_batch_bytes(int64_t rows, int64_t context) {
  return 2 * static_cast<uint64_t>(rows * context) * sizeof(int32_t);
}

BatchLoader::BatchLoader(const TokenSource& source, const DataSplit& split,
                         const BatchLoaderOptions& options)
    : source_(source),
      split_(split),
      options_(options),
      reader_([this](std::stop_token stop) { read_ahead(stop); }) {}

BatchLoader::~BatchLoader() = default;

Status BatchLoader::fill(uint64_t index, TokenBatch& batch) const {
  const BatchShape& shape = options_.shape;
  const auto micro_batch = static_cast<int64_t>(index);
  const int64_t step = micro_batch / shape.accumulation;
  shape_batch(batch, shape.micro, split_.context);
  for (int64_t row = 0; row < shape.micro; ++row) {
    const int64_t sample = global_sample(shape, {.first = options_.position + step * shape.global(),
                                                 .micro_index = micro_batch % shape.accumulation,
                                                 .rank = options_.data_rank,
                                                 .row = row});
    const int64_t begin = train_window_begin(split_, sample, options_.seed);
    TRY(fill_row(source_, split_.context, {row, {begin, split_.context}}, batch));
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

Result<const TokenBatch*> BatchLoader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return produced_ > taken_ || !failure_.ok(); });
  if (produced_ <= taken_) return failure_.error();
  const TokenBatch* batch = &slots_[taken_ % kSlots];
  ++taken_;
  changed_.notify_all();
  return batch;
}

Status read_validation(const TokenSource& source, const DataSplit& split, int64_t first,
                       int64_t rows, TokenBatch& batch) {
  shape_batch(batch, rows, split.context);
  const int64_t end = std::min(first + rows, split.validation_windows());
  for (int64_t index = first; index < end; ++index) {
    TRY(fill_row(source, split.context, {index - first, validation_window(split, index)}, batch));
  }
  return {};
}

}  // namespace lockstep::train
