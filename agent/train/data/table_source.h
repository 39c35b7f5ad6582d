#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "agent/train/data/npy_file.h"
#include "common/base/result.h"
#include "common/layout/mlp_config.h"

namespace lockstep::train {

struct TableSourceOptions {
  std::string features;  // a .npy file of [samples, inputs]; more dims count as one
  std::string targets;   // [samples] class numbers, or [samples] or [samples, outputs] values
  MlpConfig model;
};

// The samples that an MLP trains on: row i of both files is sample i. Reading is thread-safe.
// Errors blame the data and name the file.
class TableSource {
 public:
  // kInvalid if the files have no shapes and dtypes that the model can be trained on. Reads no
  // values.
  static Result<TableSource> open(const TableSourceOptions& options);

  int64_t count() const { return features_.rows(); }
  int64_t sample_bytes() const;  // in the files
  const MlpConfig& model() const { return model_; }

  // These read the samples from `first` on, as many as `out` has room for. kInvalid, with the row,
  // for a value that is not finite or a class that the model does not have.
  Status read_features(int64_t first, std::span<float> out) const;   // [samples, inputs]
  Status read_classes(int64_t first, std::span<int32_t> out) const;  // [samples]; classification
  Status read_values(int64_t first, std::span<float> out) const;  // [samples, outputs]; regression

 private:
  TableSource(NpyFile features, NpyFile targets, MlpConfig model)
      : features_(std::move(features)), targets_(std::move(targets)), model_(std::move(model)) {}

  NpyFile features_;
  NpyFile targets_;
  MlpConfig model_;
};

}  // namespace lockstep::train
