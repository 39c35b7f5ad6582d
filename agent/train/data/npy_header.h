#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep::train {

// The header of NumPy's file format: the magic, a version, a length, and a Python dict with dtype,
// order and shape. The array's bytes follow. Source: NumPy's documentation of numpy.lib.format,
// versions 1.0, 2.0 and 3.0.

// Longer headers are refused. NumPy's own reader has this limit, too.
inline constexpr uint64_t kNpyHeaderMax = 10000;

enum class NpyType : uint8_t { kF4, kF8, kB1, kU1, kI1, kI2, kI4, kI8 };

// "<f4", "|u1", ... as the format names them, little-endian.
std::string_view npy_type_name(NpyType type);
uint64_t npy_type_bytes(NpyType type);
bool is_integer(NpyType type);  // or a truth value

// An array in C order whose first dim counts its rows.
struct NpyHeader {
  NpyType type = NpyType::kF4;
  std::vector<int64_t> shape;  // at least one dim, all above 0
  uint64_t data_begin = 0;     // where the array's bytes begin in the file

  int64_t rows() const { return shape.front(); }
  int64_t columns() const;  // values of a row: the product of the other dims
  bool operator==(const NpyHeader&) const = default;
};

// Reads the header of a file of `file_bytes` bytes that begins with `beginning`: at least the
// header, or the whole file. Everything is checked: the version, a dtype that we read, C order, a
// shape without overflow, and that the file has exactly the array's bytes. kInvalid, with what was
// found and what would be right, without the file's name; never throws.
Result<NpyHeader> parse_npy_header(std::string_view beginning, uint64_t file_bytes);

}  // namespace lockstep::train
