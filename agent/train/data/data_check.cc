#include "agent/train/data/data_check.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/check.h"

namespace lockstep::train {
namespace {

constexpr int64_t kValuesAtOnce = 1 << 18;

// Tokens or samples, and the check of `count` of them from `first` on.
struct Items {
  int64_t count = 0;
  int64_t bytes = 1;    // of each
  int64_t at_once = 1;  // how many are checked in one call
  std::function<Status(int64_t first, int64_t count)> check;
};

Status check_range(const Items& items, int64_t begin, int64_t end) {
  while (begin < end) {
    const int64_t now = std::min(end - begin, items.at_once);
    TRY(items.check(begin, now));
    begin += now;
  }
  return {};
}

std::string mebibytes(int64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

Status check_items(const Items& items, const DataCheckLimits& limits) {
  CHECK(limits.blocks > 1);
  const int64_t count_max = limits.bytes_max / items.bytes;
  if (items.count <= count_max) return check_range(items, 0, items.count);
  const int64_t block = std::max<int64_t>(count_max / limits.blocks, 1);
  const int64_t last = items.count - block;
  for (int64_t i = 0; i < limits.blocks; ++i) {
    const int64_t begin = last * i / (limits.blocks - 1);
    const Status status = check_range(items, begin, begin + block);
    if (status.ok()) continue;
    return status.error().with_message(status.error().message + " (in a sample of " +
                                       mebibytes(limits.blocks * block * items.bytes) + " of the " +
                                       mebibytes(items.count * items.bytes) + ")");
  }
  return {};
}

}  // namespace

Status check_tokens(const TokenSource& source, const DataCheckLimits& limits) {
  const auto width = static_cast<int64_t>(source.options().width);
  if (source.options().vocabulary >= int64_t{1} << 8 * width) return {};
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(kValuesAtOnce, source.count())));
  return check_items({.count = source.count(),
                      .bytes = width,
                      .at_once = kValuesAtOnce,
                      .check =
                          [&](int64_t first, int64_t count) {
                            return source.read(first,
                                               std::span(tokens).first(static_cast<size_t>(count)));
                          }},
                     limits);
}

Status check_samples(const TableSource& source, const DataCheckLimits& limits) {
  const MlpConfig& model = source.model();
  const int64_t values = std::max(model.inputs, model.outputs);
  const int64_t at_once = std::max<int64_t>(kValuesAtOnce / values, 1);
  std::vector<float> rows(static_cast<size_t>(at_once * values));
  std::vector<int32_t> classes(static_cast<size_t>(at_once));
  const auto check = [&](int64_t first, int64_t count) -> Status {
    const auto room = [&](int64_t columns) {
      return std::span(rows).first(static_cast<size_t>(count * columns));
    };
    TRY(source.read_features(first, room(model.inputs)));
    if (model.task == MlpTask::kRegression) return source.read_values(first, room(model.outputs));
    return source.read_classes(first, std::span(classes).first(static_cast<size_t>(count)));
  };
  return check_items(
      {.count = source.count(), .bytes = source.sample_bytes(), .at_once = at_once, .check = check},
      limits);
}

Status check_images(int64_t count, int64_t bytes, const std::function<Status(int64_t)>& check,
                    const DataCheckLimits& limits) {
  const auto check_range = [&](int64_t first, int64_t images) -> Status {
    for (int64_t index = first; index < first + images; ++index) TRY(check(index));
    return {};
  };
  return check_items({.count = count, .bytes = bytes, .at_once = count, .check = check_range},
                     limits);
}

}  // namespace lockstep::train
