// The instruction set the compiler assumes by default on this architecture (SSE2 on x86-64).
#pragma once

#define LOCKSTEP_ISA baseline
#define LOCKSTEP_ISA_NAME "baseline"
#define LOCKSTEP_ISA_LEVEL CpuLevel::kBaseline
#define LOCKSTEP_ISA_LANES 4
#define LOCKSTEP_ISA_REGISTERS 16
// The product of two WideVecs' lower halves, lane by lane; see simd.h.
#define LOCKSTEP_ISA_WORD_PRODUCT(a, b) (((a)&0xFFFFFFFFu) * ((b)&0xFFFFFFFFu))
