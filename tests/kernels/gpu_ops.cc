#include "tests/kernels/gpu_ops.h"

#include <algorithm>
#include <cstdio>

#include "kernels/ops/dnn/dnn.h"
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

constexpr Device kGpu{DeviceType::kCuda, 0};

Status run_cudnn_on_gpu(const AttentionShape& shape) {
  TRY_ASSIGN(const size_t workspace, dnn::prepare_attention(kGpu, shape));
  OpCase c = op_cases::attention(shape, AttentionBy::kCudnn);
  c.workspace_bytes = std::max(c.workspace_bytes, workspace);
  return run_on_gpu(c, {.device = kGpu, .dtype = DType::kBf16});
}

// Adds no cases, and prints why, if the library is missing.
void add_cudnn_cases(std::vector<GpuCase>& cases) {
  if (const Status status = dnn::available(); !status.ok()) {
    std::printf("not tried: attention by cuDNN: %s\n", status.error().message.c_str());
    return;
  }
  for (const AttentionShape& shape :
       {AttentionShape{.batch = 2, .sequence = 2, .heads = 2, .head_dim = 64, .kv_heads = 2},
        AttentionShape{.batch = 1, .sequence = 67, .heads = 4, .head_dim = 64, .kv_heads = 2},
        AttentionShape{.batch = 2, .sequence = 64, .heads = 2, .head_dim = 64, .kv_heads = 2},
        AttentionShape{.batch = 1, .sequence = 130, .heads = 3, .head_dim = 128, .kv_heads = 1},
        AttentionShape{.batch = 1, .sequence = 128, .heads = 2, .head_dim = 128, .kv_heads = 2}}) {
    const std::string name = op_cases::attention(shape, AttentionBy::kCudnn).name;
    cases.push_back(
        {"bf16 " + name + " is right twice", [shape] { return run_cudnn_on_gpu(shape); }});
  }
}

}  // namespace

std::vector<GpuCase> gpu_op_cases() {
  std::vector<GpuCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const RunOn on{.device = kGpu, .dtype = dtype};
    for (const OpCase& c : op_cases::cuda_cases()) {
      cases.push_back({(dtype == DType::kF32 ? "f32 " : "bf16 ") + c.name + " is right twice",
                       [c, on] { return run_on_gpu(c, on); }});
    }
  }
  add_cudnn_cases(cases);
  return cases;
}

}  // namespace lockstep::test
