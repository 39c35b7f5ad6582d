#include "kernels/ops/dnnl_engine.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include "common/base/check.h"
#include "kernels/device/parallel.h"
#include "kernels/ops/cpu_level.h"

namespace lockstep::kernels {
namespace {

dnnl_cpu_isa_t isa_of(CpuLevel level) {
  switch (level) {
    case CpuLevel::kBaseline:
      return dnnl_cpu_isa_sse41;  // the lowest that oneDNN has
    case CpuLevel::kAvx2:
      return dnnl_cpu_isa_avx2;
    case CpuLevel::kAvx512:
      return dnnl_cpu_isa_avx512_core;
    case CpuLevel::kAvx512Bf16:
      return dnnl_cpu_isa_avx512_core_bf16;
    case CpuLevel::kAmx:
      return dnnl_cpu_isa_all;
  }
  return dnnl_cpu_isa_all;
}

// oneDNN takes a cap only before its first use of the CPU. Without a cap of ours, oneDNN's own
// variable (DNNL_MAX_CPU_ISA) stays in force.
void cap_instruction_set() {
  static const bool done = [] {
    const CpuLevel cap = cpu_level_cap().value();
    if (cap < CpuLevel::kAmx) CHECK(dnnl_set_max_cpu_isa(isa_of(cap)) == dnnl_success);
    return true;
  }();
  (void)done;
}

}  // namespace

dnnl_engine_t dnnl_cpu_engine() {
  static const dnnl_engine_t engine = [] {
    cap_instruction_set();
    dnnl_engine_t made = nullptr;
    CHECK(dnnl_engine_create(&made, dnnl_cpu, 0) == dnnl_success);
    return made;
  }();
  return engine;
}

void set_dnnl_threads() {
  const int thread_count = threads();
  if (omp_get_max_threads() != thread_count) omp_set_num_threads(thread_count);
}

}  // namespace lockstep::kernels
