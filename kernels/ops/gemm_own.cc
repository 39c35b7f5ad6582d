#include "kernels/ops/gemm.h"
#include "kernels/ops/isa_table.h"
#include "kernels/ops/op_table.h"
#include "kernels/ops/own_gemm.h"

namespace lockstep::kernels {

void gemm(const Gemm& args) {
  own_gemm(args);
}

MatmulSupport cpu_matmul_support() {
  return {.library = "own",
          .isa = cpu_ops_isa(),
          .native_bf16 = false,
          .level = supported_isas().front()->level};
}

}  // namespace lockstep::kernels
