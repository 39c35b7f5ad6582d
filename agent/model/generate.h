#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/model/gpt.h"
#include "agent/model/param_store.h"
#include "common/base/result.h"

namespace lockstep::model {

struct GenerateOptions {
  std::vector<int32_t> prompt;  // at least one token
  int64_t tokens = 0;           // number of tokens to generate
  float temperature = 1.0f;     // 0: always the most likely token
  int64_t top_k = 0;            // 0: all tokens
  uint64_t seed = 1;
  // Caller-owned memory of generate_memory()'s sizes, used instead of allocating; empty: allocates.
  // It must outlive the call, and no pass of another micro-batch may use it meanwhile.
  struct Memory {
    kernels::Workspace device = {};
    kernels::Workspace pinned = {};  // page-locked memory of the host
  };
  Memory memory = {};
};

// Continues the prompt. Each token is drawn given the last `context` tokens. The result depends
// only on parameters, options, device type, precision and threads. The model must be whole (all
// blocks, one shard). Synchronises with the device for every token. kInvalid for an empty prompt, a
// token outside the vocabulary or a partial model.
Result<std::vector<int32_t>> generate(Gpt& model, ParamStore& store,
                                      const GenerateOptions& options);

// The most that generate() needs in addition to the model's scratch and workspace.
struct GenerateMemory {
  size_t device = 0;
  size_t pinned = 0;
};
GenerateMemory generate_memory(const GptOptions& options, kernels::DeviceType device);

}  // namespace lockstep::model
