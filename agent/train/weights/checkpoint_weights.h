#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep::train {

// A tensor of weights by its name in a file.
struct WeightTensor {
  std::string name;
  std::vector<int64_t> shape;

  bool operator==(const WeightTensor&) const = default;
};

// Which tensors of a checkpoint are its weights: the parameters, or their moving averages.
enum class WeightsKind : uint8_t { kParameters, kAverages };

// The weights of a verified checkpoint, by the names of the parameters, however its files hold
// them.
struct CheckpointWeights {
  std::string checkpoint;  // its folder
  int64_t step = 0;
  std::vector<WeightTensor> tensors;  // each once, with its whole shape
  // Fills `to` with a tensor's elements from `first` on, in row-major order. Errors: those of
  // CheckpointReader::read().
  std::function<Status(const WeightTensor& tensor, int64_t first, std::span<float> to)> read;
};

// Opens a checkpoint's folder, or the newest checkpoint that verifies in a folder of checkpoints.
// kNotFound if there is none, kInvalid if it has no averages, kCorrupt, else as storage says.
Result<CheckpointWeights> open_checkpoint_weights(const std::string& from,
                                                  WeightsKind kind = WeightsKind::kParameters);

}  // namespace lockstep::train
