#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "kernels/ops/cpu_level.h"
#include "kernels/ops/isa_table.h"
#include "kernels/ops/matmul.h"

namespace lockstep::kernels {

// The names of all levels, in ascending order.
inline constexpr std::array<std::string_view, 5> kCpuLevelNames = {"baseline", "avx2", "avx512",
                                                                   "avx512_bf16", "amx"};

inline std::string_view cpu_level_name(CpuLevel level) {
  return kCpuLevelNames.at(static_cast<size_t>(level));
}

// Returns the level in effect: what the operations and products of this process use.
inline CpuLevel cpu_level() {
  const CpuLevel ops = supported_isas().front()->level;
  if (ops < CpuLevel::kAvx512) return ops;
  return std::max(ops, cpu_matmul_support().level);
}

}  // namespace lockstep::kernels
