#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "agent/parallel/memory_plan.h"

namespace lockstep::train {

// The kinds of recomputation, and their names in spec.train.recompute.
inline constexpr std::pair<Recompute, const char*> kRecomputes[] = {
    {Recompute::kNone, "none"}, {Recompute::kOps, "ops"}, {Recompute::kBlocks, "blocks"}};

// The most sequences of a micro-batch with which the plan (plan_memory()) and its reserve take at
// most `bytes`; 0: not even one fits. Looks no further than 4096.
int64_t largest_micro_batch(const parallel::ComposeOptions& options, uint64_t bytes);

// Returns a Markdown table with one row per preset, trained whole on each GPU in bf16: the bytes
// that do not depend on the batch, and the largest micro-batch on GPUs of each size in GB (10^9
// bytes), for each kind of recomputation. Sequences have the length of the model's context, at most
// 4096 tokens. The numbers come from the memory plan; nothing is measured.
std::string memory_table(std::span<const int64_t> gpu_gigabytes);

}  // namespace lockstep::train
