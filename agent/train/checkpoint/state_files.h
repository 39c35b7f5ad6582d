#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/parallel/state_stream.h"
#include "agent/train/checkpoint/manifest.h"
#include "agent/train/checkpoint/tensor_file.h"
#include "common/base/result.h"
#include "common/layout/parameters.h"

namespace lockstep::train {

// One file of a checkpoint and its tensors: logical ones in fp32, without padding and independent
// of the mesh.
struct StateFile {
  std::string name;  // model.safetensors
  std::vector<TensorFileWriter::Shape> tensors;
};

// The optimizer's states by their names, in the order of StateTensor::kind from 1 on.
using StateNames = std::vector<std::string>;

// Returns the files of a model's state, with the tensors in the order of a StateStream.
// model.safetensors has the parameters by their names; optimizer.safetensors has
// `<name>.exp_avg` and `<name>.exp_avg_sq`, with AdamW's states as PyTorch names them, and is
// missing if the optimizer has no state.
std::vector<StateFile> state_files(std::span<const Parameter> table, const StateNames& states);

// Writes the files of a new folder, one after the other. Errors blame storage.
class StateWriter final : public parallel::StateSink {
 public:
  // The folder is there, the files are not.
  StateWriter(std::string folder, std::vector<StateFile> files)
      : folder_(std::move(folder)), files_(std::move(files)) {}

  Status write(const parallel::StateTensor& tensor, int64_t first,
               std::span<const float> values) override;
  // All tensors were written. Returns the files with their sizes and checksums.
  Result<std::vector<ManifestFile>> finish();

 private:
  Status begin_tensor();

  std::string folder_;
  std::vector<StateFile> files_;
  std::optional<TensorFileWriter> writer_;  // of files_[written_.size()]
  size_t tensors_ = 0;                      // of that file, that have begun
  int64_t missing_ = 0;                     // elements of the last one
  std::vector<ManifestFile> written_;
};

// Reads a model's state from the folder of a checkpoint.
class StateReader final : public parallel::StateSource {
 public:
  // kInvalid, blaming the configuration, if a tensor is missing or has another shape: the
  // checkpoint belongs to another model or optimizer. Other errors of the files blame storage.
  static Result<StateReader> open(const std::string& folder, std::span<const Parameter> table,
                                  const StateNames& states);

  Status read(const parallel::StateTensor& tensor, int64_t first, std::span<float> to) override;

 private:
  struct Place {
    size_t file = 0;
    const TensorInfo* tensor = nullptr;  // of the file's header
  };
  StateReader() = default;

  size_t parameters_ = 0;
  std::vector<TensorFile> files_;
  std::vector<Place> places_;  // by kind, then by parameter
};

}  // namespace lockstep::train
