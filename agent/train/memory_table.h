#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "agent/parallel/compose.h"

namespace lockstep {

// The most sequences of a micro-batch with which the plan (plan_memory()) and its reserve take at
// most `bytes`; 0: not even one fits. Looks no further than 4096.
int64_t largest_micro_batch(const ComposeOptions& options, uint64_t bytes);

// A table in Markdown: for every preset, trained whole by each GPU in bf16, the bytes that do not
// depend on the batch, and the largest micro-batch on GPUs of so many GB (10^9 bytes) for each kind
// of recomputation. Sequences are of the model's context, but at most 4096 tokens. What is computed
// is the plan; nothing is measured.
std::string memory_table(std::span<const int64_t> gpu_gigabytes);

}  // namespace lockstep
