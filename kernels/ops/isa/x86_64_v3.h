// Code after this include is compiled for AVX2 and FMA (x86-64-v3). The op headers are included
// first, because any CPU may run their inline functions.
#pragma once

#include "kernels/ops/gemm.h"
#include "kernels/ops/op_table.h"

#pragma GCC target("arch=x86-64-v3")
#define LOCKSTEP_ISA x86_64_v3
#define LOCKSTEP_ISA_NAME "x86-64-v3"
#define LOCKSTEP_ISA_LEVEL CpuLevel::kAvx2
#define LOCKSTEP_ISA_LANES 8
#define LOCKSTEP_ISA_REGISTERS 16
#define LOCKSTEP_ISA_WORD_PRODUCT(a, b) \
  ((WideVec)__builtin_ia32_pmuludq256((IntVec)(a), (IntVec)(b)))
