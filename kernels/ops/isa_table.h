#pragma once

#include <span>

#include "kernels/ops/cpu_level.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/normal.h"
#include "kernels/ops/op_table.h"

namespace lockstep::kernels {

// The operations as compiled for one instruction set.
struct IsaTable {
  const char* name;
  CpuLevel level;
  OpTable ops;
  void (*own_gemm)(const Gemm&);
  void (*fill_normal)(const NormalFill&);
};

// One table for each instruction set of the build.
namespace x86_64_v4 {
extern const IsaTable kIsaTable;
}
namespace x86_64_v3 {
extern const IsaTable kIsaTable;
}
namespace baseline {
extern const IsaTable kIsaTable;
}

// The tables that this CPU can run and that cpu_level_cap() allows, the best one first; never
// empty. Twins: isa_x86.cc, isa_portable.cc.
std::span<const IsaTable* const> supported_isas();

// Not vectorised, hence shared by all tables (sampling.cc, scalars.cc).
void sample(Stream&, const Sample&);
void clip_scale(Stream&, const ClipScale&);
void inverse_norm(Stream&, const InverseNorm&);
void loss_sum(Stream&, const LossSum&);

}  // namespace lockstep::kernels
