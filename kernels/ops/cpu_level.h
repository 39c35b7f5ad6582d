#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.h"

namespace lockstep::kernels {

// Sets of x86-64 instructions between which results differ in their last bits, since sums are taken
// in another order. Each level includes the ones before it. Names: "baseline" (SSE2), "avx2",
// "avx512", "avx512_bf16", "amx".
enum class CpuLevel : uint8_t { kBaseline, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// kInvalid if no level has this name.
Result<CpuLevel> cpu_level_from_name(std::string_view name);

// Environment variable that caps the level of a process: its own operations and oneDNN's products.
// It may name a level above the CPU's, which changes nothing.
inline constexpr char kMaxCpuIsaVariable[] = "LOCKSTEP_MAX_CPU_ISA";

// The cap that the variable sets, or kAmx (no cap) where it is unset or empty; kInvalid if it names
// no level. Reads the environment at the first call and keeps the answer, so that every part of the
// process agrees. Programs call this in main(): later callers rely on a valid cap (CHECK).
const Result<CpuLevel>& cpu_level_cap();

}  // namespace lockstep::kernels
