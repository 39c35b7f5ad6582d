#pragma once

#include <cstdint>
#include <string>

#include "agent/parallel/host_transfer.h"
#include "common/base/result.h"
#include "common/layout/parameters.h"

namespace lockstep::train {

// Fills `parameters`, of the rank that holds all of the model, from a safetensors file of Hugging
// Face's or the index of several (hugging_face.h, weight_files.h): exactly, F16 and BF16 widened,
// Conv1D's matrices transposed, parts packed; padding rows and gaps stay as they are. Takes the
// first rows of a longer table of positions, and logs that. `parameters` is memory of the
// transfer's device. kInvalid, blaming the configuration, where the files are another model's, or
// have a head that is not the embedding for a model whose head is tied. Other errors blame the
// data: kCorrupt where one is no safetensors file, else as storage says. The message names the
// path.
Status import_weights(const std::string& path, const ModelConfig& config,
                      const ParameterArena& arena, float* parameters,
                      parallel::HostTransfer& transfer);

// Returns the most memory of the host that import_weights() takes for such a model, in addition to
// the transfer's and the files' headers: the largest of Conv1D's matrices twice, and the values
// that it decodes at a time.
uint64_t import_bytes_max(const ModelConfig& config);

// Returns the error of import_weights() for such a file, as far as the headers and the first values
// of a head show it. `config` can be built.
Status check_weights(const std::string& path, const ModelConfig& config);

}  // namespace lockstep::train
