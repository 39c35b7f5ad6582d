#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "agent/train/checkpoint/chunked_file.h"
#include "agent/train/checkpoint/manifest.h"
#include "agent/train/checkpoint/safetensors.h"
#include "agent/train/checkpoint/state_tensors.h"
#include "agent/train/checkpoint/storage.h"
#include "common/base/result.h"
#include "common/layout/tensor_box.h"

namespace lockstep::train {

// Reads the logical tensors of a checkpoint from whichever files have their parts, and verifies
// every chunk that it reads. Errors: kCorrupt if the files are not those that the manifest
// describes, or do not have every element of each tensor exactly once; otherwise as storage says.
// Memory: the headers and one chunk. One thread.
class CheckpointReader {
 public:
  // Reads the headers of all files. The storage outlives it.
  static Result<CheckpointReader> open(Storage& storage, const std::string& folder,
                                       const Manifest& manifest);

  // The shapes of all logical tensors, by name.
  std::map<std::string, std::vector<int64_t>> shapes() const;
  // kInvalid, blaming the configuration, if a tensor of this model and optimizer is missing or has
  // another shape: the checkpoint belongs to another one.
  Status expect(std::span<const Parameter> table, const StateNames& states) const;
  // Fills `to` with elements of a tensor that is there, from `first` on, which are within it.
  Status read(const std::string& tensor, int64_t first, std::span<float> to);
  // Reads and verifies all bytes of all files.
  Status verify();

 private:
  struct Part {
    size_t file = 0;
    uint64_t begin = 0;  // of its bytes in the file
    TensorBox box;
  };
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<Part> parts;

    int64_t columns() const { return shape.size() == 2 ? shape[1] : 1; }
  };
  CheckpointReader() = default;

  Status add_file(ChunkedReader file);
  Status add_tensor(const TensorInfo& info, uint64_t data_begin);
  Status check_tensors() const;
  Error bad(const std::string& what) const;
  // Fills what the part has of the elements.
  Status read_part(const Part& part, int64_t columns, int64_t first, std::span<float> to);

  std::string path_;
  std::vector<ChunkedReader> files_;
  size_t read_last_ = 0;  // the file whose buffer is in use
  std::map<std::string, Tensor> tensors_;
};

}  // namespace lockstep::train
