#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"

namespace lockstep::test {

// Standard deviations that a value may be off by. The model of rounding errors takes each as large
// as it can be, so real differences are several times smaller.
inline constexpr double kDeviations = 4;
inline constexpr double kUnitRoundoff = 0x1p-24;

// A safetensors file that a script of tests/golden has written.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    uint64_t header_bytes = 0;
    CHECK(bytes_.size() > sizeof(header_bytes));
    std::memcpy(&header_bytes, bytes_.data(), sizeof(header_bytes));
    data_ = sizeof(header_bytes) + header_bytes;
    CHECK(data_ <= bytes_.size());
    const std::string_view text(bytes_.data() + sizeof(header_bytes), header_bytes);
    header_ = parse_json(text).value();
  }

  // fp32 or int32, as the file has it.
  template <class T>
  std::vector<T> tensor(const std::string& name) const {
    const Json& offsets = (*find_member(header_, name))["data_offsets"];
    const auto begin = offsets[0].get<size_t>();
    const auto end = offsets[1].get<size_t>();
    CHECK(data_ + end <= bytes_.size());
    std::vector<T> values((end - begin) / sizeof(T));
    std::memcpy(values.data(), bytes_.data() + data_ + begin, end - begin);
    return values;
  }
  double number(std::string_view key) const { return std::stod(metadata(key)); }
  int64_t integer(std::string_view key) const { return std::stoll(metadata(key)); }
  std::string metadata(std::string_view key) const {
    return string_member(*find_member(header_, "__metadata__"), key).value();
  }
  bool has_metadata(std::string_view key) const {
    return find_member(*find_member(header_, "__metadata__"), key) != nullptr;
  }

  // The names of the metadata and the tensors.
  const Json& header() const { return header_; }

 private:
  std::string bytes_;
  size_t data_ = 0;
  Json header_;
};

}  // namespace lockstep::test
