#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep::train {

// Rows of a click log: a label, and features, each with a 64-bit key and a value.
struct ClickRows {
  std::vector<float> labels;              // 1 for a click, else 0
  std::vector<uint32_t> row_begin = {0};  // first feature of each row, then their number
  std::vector<uint64_t> keys;
  std::vector<float> values;
  std::vector<uint32_t> columns;  // of each feature, in [0, kCriteoColumns); libsvm has but one

  size_t size() const { return labels.size(); }
  void clear();
};

// Formats of a click log, one row a line:
// - criteo: a label (0 or 1), 13 integers and 26 categories, separated by tabs; any of them may be
//   empty, which is no feature. A number v above 2 counts as the category floor(log(v)^2), others
//   are categories as they are. The key of a feature is a hash of its column and its text. Values
//   are 1. Source: Criteo's display advertising challenge; the categories of numbers are those of
//   the winning team (github.com/ycjuan/kaggle-2014-criteo).
// - libsvm: a label (0, 1 or -1, which is 0), then index:value pairs with ascending indices,
//   separated by spaces. The index is the key. Source: LIBSVM's README.
enum class ClickFormat : uint8_t { kCriteo, kLibsvm };

// Parses "criteo" or "libsvm"; kInvalid for any other name.
Result<ClickFormat> parse_click_format(std::string_view name);

// Adds the row of a line, which is without its line break. kInvalid, with the reason and nothing
// changed, for any other line: "column 3 is "x", expected a whole number".
Status add_click_row(ClickFormat format, std::string_view line, ClickRows& rows);

inline constexpr size_t kClickLineBytesMax = 1u << 20;
inline constexpr size_t kClickFeaturesMax = size_t{1} << 28;  // of all rows together
inline constexpr int kCriteoNumbers = 13;
inline constexpr int kCriteoCategories = 26;
inline constexpr int kCriteoColumns = kCriteoNumbers + kCriteoCategories;  // without the label

// Returns the key of a category of a column of the criteo format, counted from 1 after the label.
uint64_t criteo_key(int column, std::string_view text);

}  // namespace lockstep::train
