#include "tests/kernels/gpu_ops.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "kernels/ops/dnn/dnn.h"
#include "tests/kernels/op_checks.h"

namespace lockstep::test {

namespace {

using kernels::op_cases::OpCase;
using kernels::op_cases::RunOn;
using kernels::op_cases::Tensors;

Status run_on_gpu(const OpCase& c, const RunOn& on) {
  TRY_ASSIGN(const kernels::OpTable* ops, kernels::device_ops(kernels::DeviceType::kCuda));
  TRY_ASSIGN(const Tensors first, kernels::op_cases::run_case(c, *ops, on));
  TRY(kernels::op_cases::check_forward(c, first));
  TRY(kernels::op_cases::check_gradients(c, first));
  TRY_ASSIGN(const Tensors second, kernels::op_cases::run_case(c, *ops, on));
  return kernels::op_cases::check_same_bits(c, first, second);
}

constexpr kernels::Device kGpu{kernels::DeviceType::kCuda, 0};

Status run_cudnn_on_gpu(const kernels::AttentionShape& shape) {
  TRY_ASSIGN(const size_t workspace, kernels::dnn::prepare_attention(kGpu, shape));
  OpCase c = kernels::op_cases::attention(shape, kernels::AttentionBy::kCudnn);
  c.workspace_bytes = std::max(c.workspace_bytes, workspace);
  return run_on_gpu(c, {.device = kGpu, .dtype = kernels::DType::kBf16});
}

// A convolution by cuDNN.
struct CudnnConv2d {
  kernels::Conv2dShape shape;
  bool adds_dx = false;
  kernels::DType dtype = kernels::DType::kF32;
};

// Expects cuDNN to compute all passes. For an H100 cudnn_library_test plans the same shapes.
Result<OpCase> prepared_case(const CudnnConv2d& conv) {
  TRY_ASSIGN(const kernels::dnn::PreparedConv2d prepared,
             kernels::dnn::prepare_conv2d(
                 kGpu, {.shape = conv.shape, .dtype = conv.dtype, .adds_dx = conv.adds_dx}));
  if (const std::string refusals = prepared.refusals(); !refusals.empty()) {
    return internal("[test] expected all passes by cuDNN, got " + refusals);
  }
  OpCase c = kernels::op_cases::conv2d(conv.shape, conv.adds_dx, false, prepared.kernels());
  c.workspace_bytes = std::max(c.workspace_bytes, prepared.workspace_bytes());
  return c;
}

Status run_cudnn_conv2d_on_gpu(const CudnnConv2d& conv) {
  TRY_ASSIGN(const OpCase c, prepared_case(conv));
  return run_on_gpu(c, {.device = kGpu, .dtype = conv.dtype});
}

// Compares the gradients with those of our own kernels, since the reference's take minutes.
Status run_large_cudnn_conv2d_on_gpu(const CudnnConv2d& conv) {
  TRY_ASSIGN(const OpCase c, prepared_case(conv));
  const RunOn on{.device = kGpu, .dtype = conv.dtype};
  TRY_ASSIGN(const kernels::OpTable* ops, kernels::device_ops(kernels::DeviceType::kCuda));
  TRY_ASSIGN(const Tensors first, kernels::op_cases::run_case(c, *ops, on));
  TRY(kernels::op_cases::check_forward(c, first));
  const OpCase own = kernels::op_cases::conv2d(conv.shape, conv.adds_dx, false);
  TRY_ASSIGN(const Tensors by_own, kernels::op_cases::run_case(own, *ops, on));
  TRY(kernels::op_cases::check_close(c, first, by_own));
  TRY_ASSIGN(const Tensors second, kernels::op_cases::run_case(c, *ops, on));
  return kernels::op_cases::check_same_bits(c, first, second);
}

void add_cudnn_conv2d_case(const CudnnConv2d& conv, Status (*run)(const CudnnConv2d&),
                           std::vector<GpuCase>& cases) {
  constexpr kernels::Conv2dBy kCudnn = kernels::Conv2dBy::kCudnn;
  const std::string name =
      kernels::op_cases::conv2d(conv.shape, conv.adds_dx, false, {kCudnn, kCudnn, kCudnn}).name;
  cases.push_back(
      {(conv.dtype == kernels::DType::kF32 ? "f32 " : "bf16 ") + name + " is right twice",
       [=] { return run(conv); }});
}

void add_cudnn_conv2d_cases(std::vector<GpuCase>& cases) {
  for (const kernels::DType dtype : {kernels::DType::kF32, kernels::DType::kBf16}) {
    for (const bool adds : {false, true}) {
      for (const kernels::Conv2dShape& shape : kernels::op_cases::conv2d_shapes()) {
        add_cudnn_conv2d_case({shape, adds, dtype}, run_cudnn_conv2d_on_gpu, cases);
      }
      add_cudnn_conv2d_case({kernels::op_cases::large_conv2d_shape(), adds, dtype},
                            run_large_cudnn_conv2d_on_gpu, cases);
    }
  }
}

// Adds no cases, and prints why, if the library is missing.
void add_cudnn_cases(std::vector<GpuCase>& cases) {
  if (const Status status = kernels::dnn::available(); !status.ok()) {
    std::printf("not tried: attention and convolutions by cuDNN: %s\n",
                status.error().message.c_str());
    return;
  }
  add_cudnn_conv2d_cases(cases);
  for (const kernels::AttentionShape& shape :
       {kernels::AttentionShape{
            .batch = 2, .sequence = 2, .heads = 2, .head_dim = 64, .kv_heads = 2},
        kernels::AttentionShape{
            .batch = 1, .sequence = 67, .heads = 4, .head_dim = 64, .kv_heads = 2},
        kernels::AttentionShape{
            .batch = 2, .sequence = 64, .heads = 2, .head_dim = 64, .kv_heads = 2},
        kernels::AttentionShape{
            .batch = 1, .sequence = 130, .heads = 3, .head_dim = 128, .kv_heads = 1},
        kernels::AttentionShape{
            .batch = 1, .sequence = 128, .heads = 2, .head_dim = 128, .kv_heads = 2}}) {
    const std::string name = kernels::op_cases::attention(shape, kernels::AttentionBy::kCudnn).name;
    cases.push_back(
        {"bf16 " + name + " is right twice", [shape] { return run_cudnn_on_gpu(shape); }});
  }
}

}  // namespace

std::vector<GpuCase> gpu_op_cases() {
  std::vector<GpuCase> cases;
  for (const kernels::DType dtype : {kernels::DType::kF32, kernels::DType::kBf16}) {
    const RunOn on{.device = kGpu, .dtype = dtype};
    for (const OpCase& c : kernels::op_cases::cuda_cases()) {
      cases.push_back(
          {(dtype == kernels::DType::kF32 ? "f32 " : "bf16 ") + c.name + " is right twice",
           [c, on] { return run_on_gpu(c, on); }});
    }
  }
  add_cudnn_cases(cases);
  return cases;
}

}  // namespace lockstep::test
