#pragma once

#include <string>

#include "agent/parallel/host_transfer.h"
#include "common/base/result.h"
#include "common/layout/parameters.h"

namespace lockstep::train {

// Fills `parameters`, of the rank that holds all of the model, from a safetensors file of Hugging
// Face's or the index of several (hugging_face.h, weight_files.h): exactly, F16 and BF16 widened,
// Conv1D's matrices transposed, parts packed; padding rows and gaps stay as they are. Takes the
// first rows of a longer table of positions, and logs that. `parameters` is memory of the
// transfer's device. Beside what that takes, the host holds a megabyte or two, or one of Conv1D's
// matrices twice. kInvalid where the files are another model's, or
// have a head that is not the embedding for a model whose head is tied; kCorrupt where one is no
// safetensors file, else as storage says. The message names the path.
Status import_weights(const std::string& path, const ModelConfig& config,
                      const ParameterArena& arena, float* parameters,
                      parallel::HostTransfer& transfer);

// Returns the error of import_weights() for such a file, as far as the headers and the first values
// of a head show it. `config` can be built.
Status check_weights(const std::string& path, const ModelConfig& config);

}  // namespace lockstep::train
