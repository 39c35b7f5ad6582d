#include "agent/train/data/table_source.h"

#include <utility>

#include "common/base/check.h"

namespace lockstep::train {
namespace {

Error bad_file(const NpyFile& file, const std::string& found, const std::string& expected) {
  return invalid("[data] " + file.path() + ": found " + found + ", expected " + expected,
                 Blame::kData);
}

Status check_columns(const NpyFile& file, const char* what, int64_t expected) {
  if (file.columns() == expected) return {};
  return bad_file(file, "rows of " + std::to_string(file.columns()) + " values",
                  "the model's " + std::to_string(expected) + " " + what);
}

Status check_targets(const NpyFile& targets, const MlpConfig& model) {
  if (model.task == MlpTask::kRegression) return check_columns(targets, "outputs", model.outputs);
  if (!is_integer(targets.header().type)) {
    return bad_file(targets, "dtype " + std::string(npy_type_name(targets.header().type)),
                    "integers, since the targets are class numbers: save array.astype(\"<i4\")");
  }
  if (targets.columns() == 1) return {};
  return bad_file(targets, "rows of " + std::to_string(targets.columns()) + " values",
                  "one class number per row");
}

}  // namespace

Result<TableSource> TableSource::open(const TableSourceOptions& options) {
  TRY_ASSIGN(NpyFile features, NpyFile::open(options.features));
  TRY(check_columns(features, "inputs", options.model.inputs));
  TRY_ASSIGN(NpyFile targets, NpyFile::open(options.targets));
  TRY(check_targets(targets, options.model));
  if (targets.rows() != features.rows()) {
    return bad_file(targets, std::to_string(targets.rows()) + " rows",
                    "as many as in " + features.path() + ": " + std::to_string(features.rows()));
  }
  return TableSource(std::move(features), std::move(targets), options.model);
}

int64_t TableSource::sample_bytes() const {
  return features_.row_bytes() + targets_.row_bytes();
}

Status TableSource::read_features(int64_t first, std::span<float> out) const {
  return features_.read(first, out);
}

Status TableSource::read_classes(int64_t first, std::span<int32_t> out) const {
  CHECK(model_.task == MlpTask::kClassification);
  return targets_.read_classes(first, model_.outputs, out);
}

Status TableSource::read_values(int64_t first, std::span<float> out) const {
  CHECK(model_.task == MlpTask::kRegression);
  return targets_.read(first, out);
}

}  // namespace lockstep::train
