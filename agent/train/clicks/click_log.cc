#include "agent/train/clicks/click_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"

namespace lockstep::train {
namespace {

// Returns the beginning of the first line at or after this byte.
size_t line_at(std::string_view text, size_t byte) {
  if (byte == 0 || byte >= text.size()) return std::min(byte, text.size());
  const size_t end = text.find('\n', byte - 1);
  return end == std::string_view::npos ? text.size() : end + 1;
}

Error empty_part(const std::string& path, const char* part) {
  return invalid("[data] " + path + ": expected a line " + part + ", found none", Blame::kData);
}

}  // namespace

Result<std::shared_ptr<const ClickLog>> ClickLog::open(const DataSpec& data) {
  std::shared_ptr<ClickLog> log(new ClickLog);
  TRY_ASSIGN(log->format_, parse_click_format(data.format));
  TRY_ASSIGN(log->file_, MappedFile::open(data.path));
  const std::span<const std::byte> bytes = log->file_->bytes();
  log->text_ = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  const double kept = static_cast<double>(bytes.size()) * (1 - data.validationFraction);
  const bool validates = data.validationFraction > 0;
  const size_t split =
      validates ? line_at(log->text_, static_cast<size_t>(std::floor(kept))) : bytes.size();
  log->training_ = log->text_.substr(0, split);
  log->validation_ = log->text_.substr(split);
  if (log->training_.empty()) return empty_part(data.path, "to train on");
  if (validates && log->validation_.empty()) return empty_part(data.path, "held back");
  return std::shared_ptr<const ClickLog>(std::move(log));
}

Status ClickLog::add(std::string_view line, ClickRows& rows) const {
  const Status added = add_click_row(format_, line, rows);
  if (added.ok()) return added;
  const auto before = static_cast<size_t>(line.data() - text_.data());
  const auto number = 1 + std::ranges::count(text_.substr(0, before), '\n');
  return invalid(
      "[data] " + file_->path() + ", line " + std::to_string(number) + ": " + added.error().message,
      Blame::kData);
}

ClickReader::ClickReader(std::shared_ptr<const ClickLog> log, std::string_view part)
    : log_(std::move(log)), part_(part) {
  CHECK(!part_.empty());
}

std::string_view ClickReader::next_line() {
  if (at_ == part_.size()) {
    at_ = 0;
    passed_ = 0;
  }
  const size_t end = std::min(part_.find('\n', at_), part_.size());
  const std::string_view line = part_.substr(at_, end - at_);
  at_ = std::min(end + 1, part_.size());
  ++passed_;
  return line;
}

void ClickReader::skip(int64_t rows) {
  while (rows > 0) {
    next_line();
    --rows;
    // Whole rounds through the part lead nowhere.
    if (at_ == part_.size()) rows %= passed_;
  }
}

Status ClickReader::read(int64_t batch, int64_t begin, int64_t end, ClickRows& rows) {
  for (int64_t row = 0; row < batch; ++row) {
    const std::string_view line = next_line();
    if (row >= begin && row < end) TRY(log_->add(line, rows));
  }
  return {};
}

Status ClickReader::read_on(int64_t most, ClickRows& rows) {
  for (int64_t row = 0; row < most && at_ < part_.size(); ++row) TRY(log_->add(next_line(), rows));
  return {};
}

}  // namespace lockstep::train
