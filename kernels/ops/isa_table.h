#pragma once

#include <span>

#include "kernels/ops/gemm.h"
#include "kernels/ops/op_table.h"

namespace lockstep {

// What is compiled once for each instruction set.
struct IsaTable {
  const char* name;
  OpTable ops;
  void (*own_gemm)(const Gemm&);
};

// One for each instruction set of the build.
namespace x86_64_v4 {
extern const IsaTable kIsaTable;
}
namespace x86_64_v3 {
extern const IsaTable kIsaTable;
}
namespace baseline {
extern const IsaTable kIsaTable;
}

// Those that this CPU runs, the best one first; never empty. Twins: isa_x86.cc, isa_portable.cc.
std::span<const IsaTable* const> supported_isas();

// Not vectorised, and so the same for all (sampling.cc, scalars.cc).
void sample(Stream&, const Sample&);
void clip_scale(Stream&, const ClipScale&);
void loss_sum(Stream&, const LossSum&);

}  // namespace lockstep
