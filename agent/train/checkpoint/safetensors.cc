#include "agent/train/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/json.h"

namespace lockstep::train {
namespace {

constexpr char kMetadata[] = "__metadata__";
constexpr int64_t kElementsMax = int64_t{1} << 56;
constexpr size_t kDimsMax = 16;

// Bytes of one element, 0 for a name that the format doesn't know.
uint64_t dtype_bytes(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, uint64_t>, 13> kBytes{{
      {"BOOL", 1},
      {"U8", 1},
      {"I8", 1},
      {"F8_E5M2", 1},
      {"F8_E4M3", 1},
      {"I16", 2},
      {"U16", 2},
      {"F16", 2},
      {"BF16", 2},
      {"I32", 4},
      {"U32", 4},
      {"F32", 4},
      {"F64", 8},
  }};
  for (const auto& [name, bytes] : kBytes) {
    if (name == dtype) return bytes;
  }
  return dtype == "I64" || dtype == "U64" ? 8 : 0;
}

Error bad(std::string what) {
  return corrupt("[safetensors] " + std::move(what));
}

// A non-negative integer of a document from outside.
bool is_size(const Json& value) {
  return value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0);
}

Result<TensorInfo> read_tensor(const std::string& name, const Json& entry) {
  const std::string where = "tensor \"" + name.substr(0, 200) + "\": ";
  const Json* shape = find_member(entry, "shape");
  const Json* offsets = find_member(entry, "data_offsets");
  TensorInfo tensor{.name = name, .dtype = string_or(entry, "dtype", ""), .shape = {}};
  const uint64_t element_bytes = dtype_bytes(tensor.dtype);
  if (element_bytes == 0) return bad(where + "dtype is missing or unknown");
  if (shape == nullptr || !shape->is_array() || shape->size() > kDimsMax) {
    return bad(where + "shape is not a short list of dims");
  }
  for (const Json& dim : *shape) {
    if (!is_size(dim) || dim.get<uint64_t>() > static_cast<uint64_t>(kElementsMax)) {
      return bad(where + "a dim is out of range");
    }
    tensor.shape.push_back(dim.get<int64_t>());
  }
  if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
      !is_size((*offsets)[0]) || !is_size((*offsets)[1])) {
    return bad(where + "data_offsets is not a pair of sizes");
  }
  tensor.begin = (*offsets)[0].get<uint64_t>();
  tensor.end = (*offsets)[1].get<uint64_t>();
  TRY_ASSIGN(const int64_t count, element_count(tensor.shape));
  if (tensor.end < tensor.begin ||
      tensor.end - tensor.begin != static_cast<uint64_t>(count) * element_bytes) {
    return bad(where + "data_offsets do not match dtype and shape");
  }
  return tensor;
}

Status check_cover(std::vector<TensorInfo>& tensors, uint64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin != at) {
      return bad("tensor \"" + tensor.name.substr(0, 200) + "\" begins at byte " +
                 std::to_string(tensor.begin) + ", expected " + std::to_string(at));
    }
    at = tensor.end;
  }
  if (at != data_bytes) {
    return bad("the tensors have " + std::to_string(at) + " bytes, the file has " +
               std::to_string(data_bytes) + " for them");
  }
  return {};
}

}  // namespace

Result<int64_t> element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || (dim > 0 && count > kElementsMax / dim)) return bad("a shape is out of range");
    count *= dim;
  }
  return count;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dim);
  }
  return text + "]";
}

Result<uint64_t> safetensors_header_bytes(std::string_view first_eight, uint64_t file_bytes) {
  if (first_eight.size() < 8) return bad("the file is shorter than its first field");
  uint64_t bytes = 0;
  for (size_t i = 8; i-- > 0;) bytes = bytes << 8 | static_cast<uint8_t>(first_eight[i]);
  if (bytes > kSafetensorsHeaderMax) {
    return bad("a header of " + std::to_string(bytes) + " bytes, at most " +
               std::to_string(kSafetensorsHeaderMax) + " are read");
  }
  if (file_bytes < 8 || bytes > file_bytes - 8) return bad("the file ends within its header");
  return bytes;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t file_bytes) {
  if (file_bytes < 8 || json.size() > file_bytes - 8) return bad("the file ends within its header");
  const JsonLimits limits{
      .bytes_max = kSafetensorsHeaderMax, .depth_max = 4, .values_max = 1'000'000};
  Result<Json> document = parse_json(json, limits);
  if (!document.ok()) return bad("header: " + document.error().message);
  if (!document->is_object()) return bad("the header is not an object");
  SafetensorsHeader header;
  header.data_begin = 8 + json.size();
  for (const auto& [name, entry] : document->items()) {
    if (!entry.is_object()) return bad("a member of the header is not an object");
    if (name != kMetadata) {
      TRY_ASSIGN(TensorInfo tensor, read_tensor(name, entry));
      header.tensors.push_back(std::move(tensor));
      continue;
    }
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) return bad("a value of __metadata__ is not a string");
      header.metadata.emplace(key, value.get<std::string>());
    }
  }
  TRY(check_cover(header.tensors, file_bytes - header.data_begin));
  return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  Json document = Json::object();
  if (!header.metadata.empty()) document[kMetadata] = header.metadata;
  for (const TensorInfo& tensor : header.tensors) {
    document[tensor.name] = {{"dtype", tensor.dtype},
                             {"shape", tensor.shape},
                             {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string json = dump_json(document);
  while ((8 + json.size()) % 64 != 0) json.push_back(' ');
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(json.size()) >> (8 * i)));
  }
  return bytes + json;
}

}  // namespace lockstep::train
