#pragma once

#include <string>

#include "common/base/result.h"
#include "common/layout/parameters.h"

namespace lockstep {

// Fills `parameters`, of the rank that holds all of the model, from a safetensors file of Hugging
// Face's (hugging_face.h): exactly, F16 and BF16 widened, Conv1D's matrices transposed; padding
// rows and gaps become zero. Host memory; one tensor's matrix is held beside it at a time. kInvalid
// where the file is another model's, or has a head of its own; kCorrupt where it is no safetensors
// file, else as storage says. The message names the path.
Status import_weights(const std::string& path, const ModelConfig& config,
                      const ParameterArena& arena, float* parameters);

}  // namespace lockstep
