// Code after this include is compiled for AVX-512 (x86-64-v4). The op headers are included first,
// because any CPU may run their inline functions.
#pragma once

#include "kernels/ops/gemm.h"
#include "kernels/ops/op_table.h"

#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define LOCKSTEP_ISA x86_64_v4
#define LOCKSTEP_ISA_NAME "x86-64-v4"
#define LOCKSTEP_ISA_LEVEL CpuLevel::kAvx512
#define LOCKSTEP_ISA_LANES 16
#define LOCKSTEP_ISA_REGISTERS 32
#define LOCKSTEP_ISA_WORD_PRODUCT(a, b) \
  ((WideVec)__builtin_ia32_pmuludq512_mask((IntVec)(a), (IntVec)(b), LongLongVec{}, -1))
