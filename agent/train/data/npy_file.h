#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "agent/train/data/mapped_file.h"
#include "agent/train/data/npy_header.h"
#include "common/base/result.h"

namespace lockstep::train {

// An array in a .npy or IDX file, mapped into memory. Reading is thread-safe. Errors blame the data
// and name the file.
class NpyFile {
 public:
  // The beginning tells which of the two formats it is. kNotFound for a path that isn't there,
  // kInvalid for what parse_npy_header() or parse_idx_header() refuses.
  static Result<NpyFile> open(const std::string& path);

  const std::string& path() const { return file_->path(); }
  const NpyHeader& header() const { return header_; }
  int64_t rows() const { return header_.rows(); }
  int64_t columns() const { return header_.columns(); }
  int64_t row_bytes() const;

  // Reads the rows from `first` on, out.size() / columns() of them, rounded to fp32. kInvalid, with
  // row and column, for a value that is not finite in fp32.
  Status read(int64_t first, std::span<float> out) const;

  // Reads the values of the rows from `first` on as class numbers. The array has integers and one
  // column. kInvalid, with the row, for a number that is not in [0, classes).
  Status read_classes(int64_t first, int64_t classes, std::span<int32_t> out) const;

 private:
  NpyFile(std::shared_ptr<const MappedFile> file, NpyHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}
  const std::byte* row_at(int64_t row) const;
  Error bad_value(int64_t row, int64_t column, const std::string& found,
                  const std::string& expected) const;

  std::shared_ptr<const MappedFile> file_;
  NpyHeader header_;
};

}  // namespace lockstep::train
