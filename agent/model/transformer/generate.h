#pragma once

#include <cstdint>
#include <vector>

#include "agent/model/generate_options.h"
#include "agent/model/param_store.h"
#include "agent/model/transformer/gpt.h"
#include "common/base/result.h"

namespace lockstep::model {

// Continues the prompt. Each token is drawn given the last `context` tokens. The result depends
// only on parameters, options, device type, precision, threads and shards. The ranks that share the
// tensors or the blocks call it together, and each gets the text. Synchronises with the device for
// every token. kInvalid for an empty prompt, a token outside the vocabulary or a stage without a
// relay.
Result<std::vector<int32_t>> generate(Gpt& model, ParamStore& store,
                                      const GenerateOptions& options);

// Returns the memory of the longest text.
GenerateMemory generate_memory(const GptOptions& options, const TensorShard& shard,
                               kernels::DeviceType device);

}  // namespace lockstep::model
