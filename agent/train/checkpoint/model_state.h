#pragma once

#include <string>
#include <vector>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "common/base/result.h"
#include "common/layout/parameters.h"

namespace lockstep::train {

// One rank's state of a model for a checkpoint: arenas in device memory, all in the layout of the
// parameters. Files store logical tensors, without padding and independent of the mesh.
struct ModelState {
  ModelConfig config;
  TensorShard shard;
  const ParameterArena* arena = nullptr;
  float* parameters = nullptr;
  float* first_moments = nullptr;
  float* second_moments = nullptr;
};

// model.safetensors: the parameters by their names; optimizer.safetensors: `<name>.exp_avg` and
// `<name>.exp_avg_sq`, PyTorch's names of AdamW's moments. The arenas are read when the files are
// written. For the rank that holds all of the model (one tensor shard, one stage).
std::vector<StoredFile> model_state_files(const ModelState& state);

// Fills the arenas from a checkpoint's folder; padding stays as it is. kInvalid, blaming the
// configuration, where it belongs to another model. Other errors of its files blame storage.
Status load_model_state(const std::string& path, const ModelState& state,
                        parallel::HostTransfer& transfer);

}  // namespace lockstep::train
