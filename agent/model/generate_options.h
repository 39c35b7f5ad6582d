#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/device/device.h"

namespace lockstep::model {

class Model;
class StageRelay;

struct GenerateOptions {
  std::vector<int32_t> prompt;  // at least one token
  int64_t tokens = 0;           // number of tokens to generate
  float temperature = 1.0f;     // 0: always the most likely token
  int64_t top_k = 0;            // 0: all tokens
  uint64_t seed = 1;
  StageRelay* relay = nullptr;  // for a stage of a pipeline
  // The stage's chunks after the model's own, ascending. They are of the same design and were made
  // in the same way.
  std::vector<Model*> later_chunks = {};
  // Caller-owned memory of generate_memory()'s sizes, used instead of allocating; empty: allocates.
  // It must outlive the call, and no pass of another micro-batch may use it meanwhile.
  struct Memory {
    kernels::Workspace device = {};
    kernels::Workspace pinned = {};  // page-locked memory of the host
  };
  Memory memory = {};
};

// The most that generating a text needs in addition to the model's scratch and workspace.
struct GenerateMemory {
  size_t device = 0;
  size_t pinned = 0;
};

}  // namespace lockstep::model
