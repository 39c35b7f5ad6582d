#include "agent/train/weights/weight_split.h"

#include <cstdio>

#include "agent/train/checkpoint/safetensors.h"
#include "common/base/check.h"

namespace lockstep::train {
namespace {

// Upper bounds of a header's bytes: its length, metadata and padding, and one tensor's entry in
// addition to the name (four numbers of at most 19 digits, and the words around them).
constexpr uint64_t kHeaderBytesMax = 160;
constexpr uint64_t kEntryBytesMax = 140;

}  // namespace

uint64_t data_bytes(const WeightTensor& tensor, kernels::DType dtype) {
  const Result<int64_t> count = element_count(tensor.shape);
  CHECK(count.ok());
  return static_cast<uint64_t>(*count) * kernels::dtype_bytes(dtype);
}

std::vector<size_t> split_tensors(std::span<const WeightTensor> tensors, kernels::DType dtype,
                                  uint64_t file_bytes_max) {
  if (file_bytes_max == 0) return {tensors.size()};
  std::vector<size_t> files;
  uint64_t bytes = 0;  // of the last file
  for (const WeightTensor& tensor : tensors) {
    const uint64_t more = data_bytes(tensor, dtype) + kEntryBytesMax + tensor.name.size();
    if (files.empty() || bytes + more > file_bytes_max) {
      files.push_back(0);
      bytes = kHeaderBytesMax;
    }
    ++files.back();
    bytes += more;
  }
  return files;
}

std::string weight_file_name(size_t number, size_t files) {
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", number, files);
  return name;
}

}  // namespace lockstep::train
