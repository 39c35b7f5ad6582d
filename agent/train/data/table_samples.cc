#include "agent/train/data/table_samples.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "agent/train/data/data_check.h"
#include "common/base/random.h"

namespace lockstep::train {

TableSamples::TableSamples(TableSource table, int64_t training_samples)
    : table_(std::move(table)),
      training_samples_(training_samples),
      design_(batch_design(table_.model(), 1)) {}

Result<std::unique_ptr<TableSamples>> TableSamples::create(TableSource table,
                                                           double validation_fraction) {
  const int64_t count = table.count();
  const auto held_back =
      static_cast<int64_t>(std::llround(static_cast<double>(count) * validation_fraction));
  if (count - held_back < 1 || (validation_fraction > 0 && held_back == 0)) {
    return invalid("[data] " + std::to_string(count) +
                       " samples are too few to train on some and hold back others for validation",
                   Blame::kData);
  }
  return std::unique_ptr<TableSamples>(new TableSamples(std::move(table), count - held_back));
}

std::string TableSamples::size() const {
  return std::to_string(table_.count()) + " samples";
}

int64_t train_row(int64_t rows, const SampleSource::TrainingSample& sample) {
  const auto size = static_cast<uint64_t>(rows);
  const auto index = static_cast<uint64_t>(sample.index);
  Random random(sample.seed, index / size);
  return static_cast<int64_t>(permute(index % size, size, random.next_u64()));
}

Status TableSamples::check() const {
  return check_samples(table_);
}

Status TableSamples::read_training(const TrainingSample& sample, int64_t row,
                                   SampleBatch& batch) const {
  return read(train_row(training_samples_, sample), row, batch);
}

Status TableSamples::read_validation(int64_t first, int64_t rows, SampleBatch& batch) const {
  const int64_t count = std::min(rows, validation_samples() - first);
  batch.reset(design_, count);
  for (int64_t row = 0; row < count; ++row) {
    TRY(read(training_samples_ + first + row, row, batch));
  }
  return {};
}

Status TableSamples::read(int64_t sample, int64_t row, SampleBatch& batch) const {
  TRY(table_.read_features(sample, batch.row<float>(kFeatures, row)));
  if (table_.model().task == MlpTask::kClassification) {
    TRY(table_.read_classes(sample, batch.row<int32_t>(kTargets, row)));
  } else {
    TRY(table_.read_values(sample, batch.row<float>(kTargets, row)));
  }
  batch.count(design_.counted);
  return {};
}

}  // namespace lockstep::train
