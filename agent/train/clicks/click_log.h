#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "agent/train/clicks/click_rows.h"
#include "agent/train/data/mapped_file.h"
#include "common/api/training_job.h"
#include "common/base/result.h"

namespace lockstep::train {

// A click log on disk. Its last part, `validationFraction` of the bytes and from a line's beginning
// on, is held back for validation. Immutable.
class ClickLog {
 public:
  // Errors begin with `[data] PATH` and blame the data: the file cannot be read, or one of the two
  // parts has no line (the second one only if it is wanted).
  static Result<std::shared_ptr<const ClickLog>> open(const DataSpec& data);

  std::string_view training() const { return training_; }
  std::string_view validation() const { return validation_; }
  size_t bytes() const { return text_.size(); }

  // Adds the row of a line of this log. kInvalid, blaming the data: `[data] PATH, line 7: reason`.
  // Only then counts the lines before.
  Status add(std::string_view line, ClickRows& rows) const;

 private:
  ClickLog() = default;

  std::shared_ptr<const MappedFile> file_;
  ClickFormat format_ = ClickFormat::kCriteo;
  std::string_view text_;
  std::string_view training_;
  std::string_view validation_;
};

// Streams through lines of a log in their order, over and over: the rows [i * n, (i + 1) * n) are
// the i-th batch of n rows, and each rank parses its share of them. Keeps nothing but its place.
// One thread.
class ClickReader {
 public:
  // `part` is the log's training() or validation(), and not empty.
  ClickReader(std::shared_ptr<const ClickLog> log, std::string_view part);

  // Passes `rows` rows without parsing them.
  void skip(int64_t rows);
  // Passes `batch` rows and adds those with numbers in [begin, end) to `rows`. Errors as
  // ClickLog::add().
  Status read(int64_t batch, int64_t begin, int64_t end, ClickRows& rows);
  // Adds at most `most` rows, up to the end of the part. None: the part is over.
  Status read_on(int64_t most, ClickRows& rows);

 private:
  std::string_view next_line();

  std::shared_ptr<const ClickLog> log_;
  std::string_view part_;
  size_t at_ = 0;
  int64_t passed_ = 0;  // rows since the part's beginning
};

}  // namespace lockstep::train
