#include "common/api/codec.h"

#include <charconv>

namespace lockstep::codec {
namespace {

// Returns the shortest text that reads back as the same number: 0.5, 1e-08, inf.
std::string number_text(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

std::string choices_sentence(std::string_view choices) {
  std::string text;
  for (const char c : choices) text += c == ' ' ? std::string(", ") : std::string(1, c);
  const size_t last = text.rfind(", ");
  return last == std::string::npos ? text : text.replace(last, 2, " or ");
}

}  // namespace

bool has_choice(std::string_view choices, std::string_view value) {
  while (!choices.empty()) {
    const size_t space = choices.find(' ');
    if (choices.substr(0, space) == value) return true;
    if (space == std::string_view::npos) return false;
    choices.remove_prefix(space + 1);
  }
  return false;
}

std::string Path::text() const {
  if (parent_ == nullptr) return std::string(text_);
  if (index_ == SIZE_MAX) return join_path(parent_->text(), text_);
  return parent_->text() + "[" + std::to_string(index_) + "]";
}

bool read_integer(const Json& document, int64_t& value) {
  if (!document.is_number_integer()) return false;
  if (document.is_number_unsigned() &&
      document.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return false;
  }
  value = document.get<int64_t>();
  return true;
}

void check_integer(int64_t value, const Path& path, const Field& field, Problems& problems) {
  const auto low = static_cast<int64_t>(field.minimum);
  const auto high = static_cast<int64_t>(field.maximum);
  if (value >= low && value <= high) return;
  problems.push_back(path.text() + ": " + std::to_string(value) + " is out of range, expected " +
                     std::to_string(low) + " to " + std::to_string(high));
}

void check_number(double value, const Path& path, const Field& field, Problems& problems) {
  const bool above = field.above_minimum ? value > field.minimum : value >= field.minimum;
  const bool is_high_enough = above || (field.minimum == -kIntegerMax && value < 0);
  const bool is_low_enough = value <= field.maximum || (field.maximum == kIntegerMax && value > 0);
  if (is_high_enough && is_low_enough && std::isfinite(value)) return;
  const std::string low = number_text(field.minimum);
  problems.push_back(path.text() + ": " + number_text(value) + " is out of range, expected " +
                     (field.above_minimum ? "more than " + low + " and at most " : low + " to ") +
                     number_text(field.maximum));
}

void check_string(const std::string& value, const std::string& fallback, const Path& path,
                  const Field& field, Problems& problems) {
  if (value == fallback && !field.required) return;
  if (!field.choices.empty()) {
    if (has_choice(field.choices, value)) return;
    problems.push_back(path.text() + ": found " + in_quotes(value) + ", expected " +
                       choices_sentence(field.choices));
  } else if (value.size() > field.bytes_max) {
    problems.push_back(path.text() + ": " + std::to_string(value.size()) +
                       " bytes, expected at most " + std::to_string(field.bytes_max));
  } else if (value.find('\0') != std::string::npos) {
    problems.push_back(path.text() + ": found " + in_quotes(value) +
                       ", expected text without zero bytes");
  }
}

}  // namespace lockstep::codec
