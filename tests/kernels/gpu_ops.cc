#include "tests/kernels/gpu_ops.h"

#include "tests/kernels/op_checks.h"

namespace lockstep::test {

namespace {

using op_cases::OpCase;
using op_cases::RunOn;
using op_cases::Tensors;

Status run_on_gpu(const OpCase& c, const RunOn& on) {
  TRY_ASSIGN(const OpTable* ops, device_ops(DeviceType::kCuda));
  TRY_ASSIGN(const Tensors first, op_cases::run_case(c, *ops, on));
  TRY(op_cases::check_forward(c, first));
  TRY(op_cases::check_gradients(c, first));
  TRY_ASSIGN(const Tensors second, op_cases::run_case(c, *ops, on));
  return op_cases::check_same_bits(c, first, second);
}

}  // namespace

std::vector<GpuCase> gpu_op_cases() {
  std::vector<GpuCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const RunOn on{.device = {DeviceType::kCuda, 0}, .dtype = dtype};
    for (const OpCase& c : op_cases::cuda_cases()) {
      cases.push_back({(dtype == DType::kF32 ? "f32 " : "bf16 ") + c.name + " is right twice",
                       [c, on] { return run_on_gpu(c, on); }});
    }
  }
  return cases;
}

}  // namespace lockstep::test
