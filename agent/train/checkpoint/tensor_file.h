#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/train/checkpoint/file_io.h"
#include "agent/train/checkpoint/safetensors.h"
#include "common/base/result.h"

namespace lockstep::train {

// A run of consecutive elements of a logical tensor.
struct TensorPiece {
  float* data = nullptr;
  int64_t begin = 0;  // element of the logical tensor
  int64_t count = 0;
};

// A safetensors file that is being read. Errors name it and blame storage; they are kCorrupt where
// the file is at fault.
class TensorFile {
 public:
  static Result<TensorFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  const TensorInfo* find(const std::string& name) const;
  // Fills the pieces, in host memory, from the tensor, which is fp32 and has that shape: kInvalid,
  // naming tensor and both shapes and blaming the configuration, where it is absent or another one
  // (the file belongs to another model).
  Status read(const std::string& name, const std::vector<int64_t>& shape,
              std::span<const TensorPiece> pieces) const;
  // Bytes of one of the header's tensors, from that one on; they are within it.
  Status read_bytes(const TensorInfo& tensor, uint64_t first, std::span<char> to) const;

 private:
  TensorFile(File file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}

  File file_;
  SafetensorsHeader header_;
};

}  // namespace lockstep::train
