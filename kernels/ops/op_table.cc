#include "kernels/ops/op_table.h"

#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/isa_table.h"
#include "kernels/ops/own_gemm.h"

namespace lockstep {

const OpTable& cpu_ops() {
  return supported_isas().front()->ops;
}

const char* cpu_ops_isa() {
  return supported_isas().front()->name;
}

Result<const OpTable*> device_ops(DeviceType type) {
  if (type == DeviceType::kCpu) return &cpu_ops();
  const OpTable* ops = cuda_ops();
  if (ops == nullptr) return unavailable("[ops] a build with CUDA, this one has none");
  return ops;
}

void own_gemm(const Gemm& args) {
  supported_isas().front()->own_gemm(args);
}

}  // namespace lockstep
