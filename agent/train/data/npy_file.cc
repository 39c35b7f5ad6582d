#include "agent/train/data/npy_file.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "agent/train/data/idx_header.h"
#include "common/base/check.h"

namespace lockstep::train {
namespace {

// Calls `use` with a value of the type.
template <class Use>
auto with_type(NpyType type, const Use& use) {
  switch (type) {
    case NpyType::kF4:
      return use(float{});
    case NpyType::kF8:
      return use(double{});
    case NpyType::kB1:
    case NpyType::kU1:
      return use(uint8_t{});
    case NpyType::kI1:
      return use(int8_t{});
    case NpyType::kI2:
      return use(int16_t{});
    case NpyType::kI4:
      return use(int32_t{});
    case NpyType::kI8:
      break;
  }
  return use(int64_t{});
}

// The i-th value of a type at an address that may be unaligned.
template <class T>
T value_at(const std::byte* from, size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

// Returns the shortest text that reads back as the same number: 1e+39, nan.
std::string number_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

Result<NpyFile> NpyFile::open(const std::string& path) {
  TRY_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  const std::string_view bytes(reinterpret_cast<const char*>(file->bytes().data()),
                               file->bytes().size());
  Result<NpyHeader> header =
      is_idx(bytes) ? parse_idx_header(bytes, bytes.size()) : parse_npy_header(bytes, bytes.size());
  if (!header.ok()) {
    return header.error()
        .with_message("[data] " + path + ": " + header.error().message)
        .blaming(Blame::kData);
  }
  return NpyFile(std::move(file), std::move(*header));
}

int64_t NpyFile::row_bytes() const {
  return columns() * static_cast<int64_t>(npy_type_bytes(header_.type));
}

const std::byte* NpyFile::row_at(int64_t row) const {
  const auto before = static_cast<uint64_t>(row * row_bytes());
  return file_->bytes().data() + header_.data_begin + before;
}

Error NpyFile::bad_value(int64_t row, int64_t column, const std::string& found,
                         const std::string& expected) const {
  std::string place = "row " + std::to_string(row);
  if (columns() > 1) place += ", column " + std::to_string(column);
  return invalid(
      "[data] " + path() + ": " + place + " (from 0): found " + found + ", expected " + expected,
      Blame::kData);
}

Status NpyFile::read(int64_t first, std::span<float> out) const {
  const auto count = static_cast<int64_t>(out.size());
  CHECK(count % columns() == 0 && first >= 0 && first <= rows() - count / columns());
  return with_type(header_.type, [&]<class T>(T) -> Status {
    const std::byte* from = row_at(first);
    for (size_t i = 0; i < out.size(); ++i) {
      const T value = value_at<T>(from, i);
      out[i] = static_cast<float>(value);
      if (std::isfinite(out[i])) continue;
      const auto at = static_cast<int64_t>(i);
      return bad_value(first + at / columns(), at % columns(),
                       number_text(static_cast<double>(value)),
                       "a finite number (of at most 3.4e38)");
    }
    return {};
  });
}

Status NpyFile::read_classes(int64_t first, int64_t classes, std::span<int32_t> out) const {
  CHECK(is_integer(header_.type) && columns() == 1);
  CHECK(first >= 0 && first <= rows() - static_cast<int64_t>(out.size()));
  return with_type(header_.type, [&]<class T>(T) -> Status {
    const std::byte* from = row_at(first);
    for (size_t i = 0; i < out.size(); ++i) {
      const auto value = static_cast<int64_t>(value_at<T>(from, i));
      if (value < 0 || value >= classes) {
        return bad_value(first + static_cast<int64_t>(i), 0, std::to_string(value),
                         "a class from 0 to " + std::to_string(classes - 1));
      }
      out[i] = static_cast<int32_t>(value);
    }
    return {};
  });
}

}  // namespace lockstep::train
