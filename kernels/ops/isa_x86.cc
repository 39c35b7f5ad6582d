#include <array>

#include "kernels/ops/isa_table.h"

namespace lockstep::kernels {

std::span<const IsaTable* const> supported_isas() {
  static constexpr std::array<const IsaTable*, 3> kAll = {
      &x86_64_v4::kIsaTable, &x86_64_v3::kIsaTable, &baseline::kIsaTable};
  static const size_t too_new = [] {
    const CpuLevel cap = cpu_level_cap().value();
    if (cap >= CpuLevel::kAvx512 && __builtin_cpu_supports("x86-64-v4")) return 0;
    if (cap >= CpuLevel::kAvx2 && __builtin_cpu_supports("x86-64-v3")) return 1;
    return 2;
  }();
  return std::span(kAll).subspan(too_new);
}

}  // namespace lockstep::kernels
