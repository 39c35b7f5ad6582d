#include "agent/train/clicks/click_rows.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include "kernels/ops/rounding.h"

namespace lockstep::train {
namespace {

constexpr size_t kShownBytes = 32;

// Returns the text in quotes, without what a terminal would not show.
std::string shown(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kShownBytes)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > kShownBytes ? "...\"" : "\"");
}

Error wrong_column(int column, std::string_view found, const char* expected) {
  return invalid("column " + std::to_string(column) + " is " + shown(found) + ", expected " +
                 expected);
}

std::string_view take_until(char separator, std::string_view& rest, bool& is_last) {
  const size_t end = rest.find(separator);
  is_last = end == std::string_view::npos;
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(is_last ? rest.size() : end + 1);
  return word;
}

// FNV-1a, then mixed.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

Status add_number(int column, std::string_view text, ClickRows& rows) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return wrong_column(column + 1, text, "a whole number");
  }
  if (number > 2) {
    const double log = std::log(static_cast<double>(number));
    number = static_cast<int64_t>(std::floor(log * log));
    rows.keys.push_back(criteo_key(column, "s" + std::to_string(number)));
  } else {
    rows.keys.push_back(criteo_key(column, std::to_string(number)));
  }
  return {};
}

Status add_criteo(std::string_view line, ClickRows& rows) {
  constexpr int kColumns = 1 + kCriteoNumbers + kCriteoCategories;
  bool is_last = false;
  const std::string_view label = take_until('\t', line, is_last);
  if (label != "0" && label != "1") return wrong_column(1, label, "0 or 1");
  for (int column = 1; column < kColumns; ++column) {
    if (is_last) {
      return invalid("found " + std::to_string(column) + " columns, expected " +
                     std::to_string(kColumns));
    }
    const std::string_view text = take_until('\t', line, is_last);
    if (text.empty()) continue;
    rows.columns.push_back(static_cast<uint32_t>(column - 1));
    if (column <= kCriteoNumbers) {
      TRY(add_number(column, text, rows));
    } else {
      rows.keys.push_back(criteo_key(column, text));
    }
  }
  if (!is_last) {
    return invalid("found more than " + std::to_string(kColumns) + " columns, expected " +
                   std::to_string(kColumns));
  }
  rows.values.resize(rows.keys.size(), 1.0f);
  rows.labels.push_back(label == "1" ? 1.0f : 0.0f);
  return {};
}

template <class Number>
bool parse_all(std::string_view text, Number& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.front() == '+') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::string_view next_word(std::string_view& line) {
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  line.remove_prefix(begin);
  const size_t end = line.find_first_of(" \t");
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(word.size());
  return word;
}

Status add_libsvm(std::string_view line, ClickRows& rows) {
  line = line.substr(0, line.find('#'));
  const std::string_view label_text = next_word(line);
  float label = 0;
  if (!parse_all(label_text, label) || !(label == 0 || label == 1 || label == -1)) {
    return invalid("the label is " + shown(label_text) + ", expected 0, 1 or -1");
  }
  bool is_first = true;
  uint64_t before = 0;
  for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
    const size_t colon = word.find(':');
    uint64_t index = 0;
    float value = 0;
    const bool is_pair = colon != std::string_view::npos &&
                         parse_all(word.substr(0, colon), index) &&
                         parse_all(word.substr(colon + 1), value) && std::isfinite(value);
    if (!is_pair) return invalid("found " + shown(word) + ", expected index:value");
    if (!is_first && index <= before) {
      return invalid("index " + std::to_string(index) + " comes after " + std::to_string(before) +
                     ", expected ascending ones");
    }
    is_first = false;
    before = index;
    rows.keys.push_back(index);
    rows.values.push_back(value);
    rows.columns.push_back(0);
  }
  rows.labels.push_back(label > 0 ? 1.0f : 0.0f);
  return {};
}

}  // namespace

void ClickRows::clear() {
  labels.clear();
  row_begin.assign(1, 0);
  keys.clear();
  values.clear();
  columns.clear();
}

uint64_t criteo_key(int column, std::string_view text) {
  return kernels::mixed_bits(hash_of(text) + kernels::mixed_bits(static_cast<uint64_t>(column)));
}

Result<ClickFormat> parse_click_format(std::string_view name) {
  if (name == "criteo") return ClickFormat::kCriteo;
  if (name == "libsvm") return ClickFormat::kLibsvm;
  return invalid(
      "spec.train.data.format: found \"" + std::string(name) + "\", expected criteo or libsvm",
      Blame::kConfig);
}

Status add_click_row(ClickFormat format, std::string_view line, ClickRows& rows) {
  const size_t features = rows.keys.size();
  if (line.ends_with('\r')) line.remove_suffix(1);
  Status added = invalid("it is empty");
  if (line.size() > kClickLineBytesMax) {
    added = invalid("it has more than " + std::to_string(kClickLineBytesMax) + " bytes");
  } else if (!line.empty()) {
    added = format == ClickFormat::kCriteo ? add_criteo(line, rows) : add_libsvm(line, rows);
  }
  if (added.ok() && rows.keys.size() > kClickFeaturesMax) {
    rows.labels.pop_back();
    added = invalid("the rows have more than " + std::to_string(kClickFeaturesMax) + " features");
  }
  if (!added.ok()) {
    rows.keys.resize(features);
    rows.values.resize(features);
    rows.columns.resize(features);
    return added;
  }
  rows.row_begin.push_back(static_cast<uint32_t>(rows.keys.size()));
  return {};
}

}  // namespace lockstep::train
