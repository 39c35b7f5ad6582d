#pragma once

#include <memory>
#include <string>

#include "agent/train/data/sample_source.h"
#include "agent/train/data/table_source.h"

namespace lockstep::train {

// The rows of a table as samples: `features`, and `labels` or `values`. The last rows validate;
// every epoch trains on all others once, in an order that depends on the seed and the epoch.
class TableSamples final : public SampleSource {
 public:
  // Holds back the fraction of the rows, rounded to the nearest. kInvalid if no row is left to
  // train on, or none is held back by a fraction above 0.
  static Result<std::unique_ptr<TableSamples>> create(TableSource table,
                                                      double validation_fraction);

  const BatchDesign& design() const override { return design_; }
  std::string size() const override;
  int64_t validation_samples() const override { return table_.count() - training_samples_; }
  int64_t training_samples() const { return training_samples_; }
  Status check() const override;
  Status read_training(const TrainingSample& sample, int64_t row,
                       SampleBatch& batch) const override;
  // Has fewer rows at the end.
  Status read_validation(int64_t first, int64_t rows, SampleBatch& batch) const override;

  // Indices of the tensors.
  enum Tensor : size_t { kFeatures, kTargets };

 private:
  TableSamples(TableSource table, int64_t training_samples);
  Status read(int64_t sample, int64_t row, SampleBatch& batch) const;

  const TableSource table_;
  const int64_t training_samples_;
  const BatchDesign design_;
};

// Returns the row of a training sample: every epoch is a permutation of `rows` rows.
int64_t train_row(int64_t rows, const SampleSource::TrainingSample& sample);

}  // namespace lockstep::train
