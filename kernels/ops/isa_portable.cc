#include <array>

#include "kernels/ops/isa_table.h"

namespace lockstep::kernels {

std::span<const IsaTable* const> supported_isas() {
  static constexpr std::array<const IsaTable*, 1> kAll = {&baseline::kIsaTable};
  return kAll;
}

}  // namespace lockstep::kernels
