#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep::train {

// The header of a safetensors file: 8 bytes of length N (little-endian), N bytes of JSON, then the
// tensors' bytes without gaps. Source: github.com/huggingface/safetensors, README "Format".

// Longer headers are refused before they are read.
inline constexpr uint64_t kSafetensorsHeaderMax = 8u << 20;

struct TensorInfo {
  std::string name;
  std::string dtype;  // F32, BF16, ... as the format names them
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes, from the end of the header
  uint64_t end = 0;

  bool operator==(const TensorInfo&) const = default;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // where the tensors' bytes begin in the file
};

// The N of a file of `file_bytes` bytes from its first 8; kCorrupt if it can't be.
Result<uint64_t> safetensors_header_bytes(std::string_view first_eight, uint64_t file_bytes);

// Reads the JSON of the header of a file of `file_bytes` bytes. Everything is checked: known
// dtypes, sizes that match shapes without overflow, tensors that cover the data exactly, without
// overlap or gap. kCorrupt; never throws, memory is bounded by the text's size.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t file_bytes);

// The bytes of the file before the tensors: length and JSON, padded with spaces so that the tensors
// begin at a multiple of 64 bytes. Offsets are taken from the tensors, which lie without gaps.
std::string format_safetensors_header(const SafetensorsHeader& header);

// Elements of a shape; kCorrupt for negative dims or more than 2^56.
Result<int64_t> element_count(const std::vector<int64_t>& shape);

// "[2, 3]", for messages.
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace lockstep::train
