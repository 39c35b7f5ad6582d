#include "agent/train/checkpoint/tensor_file.h"

#include <fcntl.h>

#include <algorithm>

namespace lockstep {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dim);
  }
  return text + "]";
}

SafetensorsHeader header_of(std::span<const StoredTensor> tensors) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};  // what readers of PyTorch weights look for
  uint64_t at = 0;
  for (const StoredTensor& tensor : tensors) {
    const Result<int64_t> count = element_count(tensor.shape);
    CHECK(count.ok());
    const uint64_t end = at + static_cast<uint64_t>(*count) * sizeof(float);
    header.tensors.push_back({tensor.name, "F32", tensor.shape, at, end});
    at = end;
  }
  return header;
}

}  // namespace

Result<FileDigest> write_tensor_file(const std::string& path,
                                     std::span<const StoredTensor> tensors) {
  TRY_ASSIGN(File file, File::open(path, O_WRONLY | O_CREAT | O_EXCL));
  Sha256 sha;
  FileDigest digest;
  const auto put = [&](const void* data, size_t bytes) -> Status {
    sha.update(data, bytes);
    digest.bytes += bytes;
    return file.write(data, bytes);
  };
  const SafetensorsHeader header = header_of(tensors);
  const std::string head = format_safetensors_header(header);
  TRY(put(head.data(), head.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    int64_t at = 0;
    for (const ConstTensorPiece& piece : tensors[i].pieces) {
      CHECK(piece.begin == at);
      TRY(put(piece.data, static_cast<size_t>(piece.count) * sizeof(float)));
      at += piece.count;
    }
    CHECK(static_cast<uint64_t>(at) * sizeof(float) ==
          header.tensors[i].end - header.tensors[i].begin);
  }
  TRY(file.sync());
  digest.sha256 = sha.finish();
  return digest;
}

Result<TensorFile> TensorFile::open(const std::string& path) {
  TRY_ASSIGN(File file, File::open(path, O_RDONLY));
  TRY_ASSIGN(const uint64_t file_bytes, file.size());
  std::string first(8, '\0');
  TRY(file.read_at(0, first.data(), first.size()));
  TRY_ASSIGN(const uint64_t header_bytes, safetensors_header_bytes(first, file_bytes));
  std::string json(header_bytes, '\0');
  TRY(file.read_at(8, json.data(), json.size()));
  TRY_ASSIGN(SafetensorsHeader header, parse_safetensors_header(json, file_bytes));
  return TensorFile(std::move(file), std::move(header));
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
                                 ? "it is not there"
                                 : "it is " + tensor->dtype + " " + shape_text(tensor->shape);
    return invalid("[checkpoint] " + file_.path() + ": expected " + name + " as F32 " +
                   shape_text(shape) + ", " + came + "; it belongs to another model");
  }
  for (const TensorPiece& piece : pieces) {
    const auto offset = static_cast<uint64_t>(piece.begin) * sizeof(float);
    const auto bytes = static_cast<uint64_t>(piece.count) * sizeof(float);
    CHECK(offset + bytes <= tensor->end - tensor->begin);
    TRY(file_.read_at(header_.data_begin + tensor->begin + offset, piece.data, bytes));
  }
  return {};
}

}  // namespace lockstep
