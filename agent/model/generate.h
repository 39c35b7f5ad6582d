#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/model/gpt.h"
#include "agent/model/param_store.h"
#include "common/base/result.h"

namespace lockstep {

struct GenerateOptions {
  std::vector<int32_t> prompt;  // at least one token
  int64_t tokens = 0;           // to add
  float temperature = 1.0f;     // 0: the likeliest token always
  int64_t top_k = 0;            // 0: all
  uint64_t seed = 1;
  // Of the model's device, used instead of memory of its own where it has generate_bytes(); it
  // outlives the call, and no pass of another micro-batch is in it meanwhile.
  Workspace memory = {};
};

// The tokens that follow the prompt, each drawn given the last `context` ones: the same for the
// same parameters, options, device type, precision and threads. The model is whole (all blocks, one
// shard). Waits for the device with every token.
// kInvalid for an empty prompt, a token outside the vocabulary or a partial model.
Result<std::vector<int32_t>> generate(Gpt& model, ParamStore& store,
                                      const GenerateOptions& options);

// What generate() takes at most beyond the model's scratch and workspace.
size_t generate_bytes(const GptOptions& options, DeviceType device);

}  // namespace lockstep
