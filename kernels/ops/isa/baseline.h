// The instruction set the compiler assumes by default on this architecture (SSE2 on x86-64).
#pragma once

#define LOCKSTEP_ISA baseline
#define LOCKSTEP_ISA_NAME "baseline"
#define LOCKSTEP_ISA_LEVEL CpuLevel::kBaseline
#define LOCKSTEP_ISA_LANES 4
#define LOCKSTEP_ISA_REGISTERS 16
