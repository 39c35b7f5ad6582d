#include "agent/train/checkpoint/tensor_file.h"

#include <fcntl.h>

#include <algorithm>

namespace lockstep::train {
namespace {

Error in_file(const std::string& path, const Error& error) {
  return {error.code, path + ": " + error.message, Blame::kStorage};
}

}  // namespace

Result<TensorFile> TensorFile::open(const std::string& path) {
  TRY_ASSIGN(File file, File::open(path, O_RDONLY));
  TRY_ASSIGN(const uint64_t file_bytes, file.size());
  std::string first(8, '\0');
  TRY(file.read_at(0, first.data(), first.size()));
  const Result<uint64_t> header_bytes = safetensors_header_bytes(first, file_bytes);
  if (!header_bytes.ok()) return in_file(path, header_bytes.error());
  std::string json(*header_bytes, '\0');
  TRY(file.read_at(8, json.data(), json.size()));
  Result<SafetensorsHeader> header = parse_safetensors_header(json, file_bytes);
  if (!header.ok()) return in_file(path, header.error());
  return TensorFile(std::move(file), *std::move(header));
}

const TensorInfo* TensorFile::find(const std::string& name) const {
  const auto found = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                  [&](const TensorInfo& tensor) { return tensor.name == name; });
  return found == header_.tensors.end() ? nullptr : &*found;
}

Status TensorFile::read(const std::string& name, const std::vector<int64_t>& shape,
                        std::span<const TensorPiece> pieces) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr || tensor->dtype != "F32" || tensor->shape != shape) {
    const std::string came = tensor == nullptr
                                 ? "it is missing"
                                 : "it is " + tensor->dtype + " " + shape_text(tensor->shape);
    return invalid("[checkpoint] " + file_.path() + ": expected " + name + " as F32 " +
                       shape_text(shape) + ", " + came +
                       "; it belongs to another model or optimizer",
                   Blame::kConfig);
  }
  for (const TensorPiece& piece : pieces) {
    const auto offset = static_cast<uint64_t>(piece.begin) * sizeof(float);
    const auto bytes = static_cast<uint64_t>(piece.count) * sizeof(float);
    CHECK(offset + bytes <= tensor->end - tensor->begin);
    TRY(file_.read_at(header_.data_begin + tensor->begin + offset, piece.data, bytes));
  }
  return {};
}

Status TensorFile::read_bytes(const TensorInfo& tensor, uint64_t first, std::span<char> to) const {
  CHECK(first + to.size() <= tensor.end - tensor.begin);
  return file_.read_at(header_.data_begin + tensor.begin + first, to.data(), to.size());
}

}  // namespace lockstep::train
