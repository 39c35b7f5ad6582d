#include "kernels/ops/op_table.h"

#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/isa_table.h"
#include "kernels/ops/normal.h"
#include "kernels/ops/own_gemm.h"

namespace lockstep::kernels {

const OpTable& cpu_ops() {
  return supported_isas().front()->ops;
}

const char* cpu_ops_isa() {
  return supported_isas().front()->name;
}

Result<const OpTable*> device_ops(DeviceType type) {
  if (type == DeviceType::kCuda) return cuda_ops();
  return &cpu_ops();
}

void own_gemm(const Gemm& args) {
  supported_isas().front()->own_gemm(args);
}

void fill_normal(const NormalFill& args) {
  supported_isas().front()->fill_normal(args);
}

}  // namespace lockstep::kernels
