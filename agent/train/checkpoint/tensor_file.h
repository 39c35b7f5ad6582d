#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/train/checkpoint/file_io.h"
#include "agent/train/checkpoint/safetensors.h"
#include "common/base/result.h"

namespace lockstep {

// A run of consecutive elements of a logical tensor, in host memory.
struct ConstTensorPiece {
  const float* data = nullptr;
  int64_t begin = 0;  // element of the logical tensor
  int64_t count = 0;
};
struct TensorPiece {
  float* data = nullptr;
  int64_t begin = 0;
  int64_t count = 0;
};

// A logical tensor to be stored in fp32: the pieces cover it in ascending order, wherever they lie.
struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<ConstTensorPiece> pieces;
};

// Writes a new safetensors file and syncs it; its size and checksum, taken on the way.
Result<FileDigest> write_tensor_file(const std::string& path,
                                     std::span<const StoredTensor> tensors);

// A safetensors file that is being read. Errors are kCorrupt where the file is at fault.
class TensorFile {
 public:
  static Result<TensorFile> open(const std::string& path);

  const SafetensorsHeader& header() const { return header_; }
  const TensorInfo* find(const std::string& name) const;
  // Fills the pieces from the tensor, which is fp32 and has that shape: kInvalid, naming tensor and
  // both shapes, where it is absent or another one (the file belongs to another model).
  Status read(const std::string& name, const std::vector<int64_t>& shape,
              std::span<const TensorPiece> pieces) const;

 private:
  TensorFile(File file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}

  File file_;
  SafetensorsHeader header_;
};

}  // namespace lockstep
