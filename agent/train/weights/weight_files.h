#pragma once

#include <string>
#include <vector>

#include "agent/train/checkpoint/tensor_file.h"
#include "common/base/result.h"

namespace lockstep::train {

// The safetensors files that hold a model's weights together: one, or those of an index, which
// Hugging Face writes beside them (`model.safetensors.index.json`): a JSON object whose
// `weight_map` has the file of each tensor by the tensor's name. Source:
// huggingface.co/docs/safetensors, github.com/huggingface/huggingface_hub, serialization.
class WeightFiles {
 public:
  // `path` is a safetensors file, or an index where it ends in .json; the files of an index lie in
  // its folder. kInvalid where a file lacks a tensor that the index says it has, or a tensor is in
  // two; kCorrupt where the index or a file is none, else as storage says. The message names the
  // path.
  static Result<WeightFiles> open(const std::string& path);

  const std::string& path() const { return path_; }
  // The tensors of all files, in their order; `begin`, `end` and the metadata are their files'.
  const SafetensorsHeader& header() const { return header_; }
  // Returns the file of one of the header's own tensors.
  const TensorFile& file_of(const TensorInfo& tensor) const;

 private:
  explicit WeightFiles(std::string path) : path_(std::move(path)) {}
  Status add(const std::string& path);

  std::string path_;
  std::vector<TensorFile> files_;
  SafetensorsHeader header_;
  std::vector<size_t> file_index_;  // of each tensor
};

}  // namespace lockstep::train
