// Convolutions by cuDNN on the emulated device, with a fake library that computes what our
// descriptors say, against double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/ops/dnn/dnn.h"
#include "tests/kernels/op_checks.h"
#include "tests/support/emulated_cuda/devices.h"
#include "tests/support/emulated_cuda/fake_cudnn.h"

namespace lockstep::kernels::op_cases {

namespace {

using test::fake_cudnn;

constexpr Device kDevice{DeviceType::kCuda, 0};
constexpr Conv2dKernels kAllByCudnn{Conv2dBy::kCudnn, Conv2dBy::kCudnn, Conv2dBy::kCudnn};

void expect_ok(const Status& status) {
  ASSERT_TRUE(status.ok()) << status.error().message;
}

// The case with the kernels that were prepared for it.
OpCase case_of(const dnn::Conv2dUse& use, bool is_split, const dnn::PreparedConv2d& prepared) {
  OpCase c = conv2d(use.shape, use.adds_dx, is_split, prepared.kernels());
  c.workspace_bytes = std::max(c.workspace_bytes, prepared.workspace_bytes());
  return c;
}

Tensors run(const OpCase& c, DType dtype, uint64_t seed) {
  emulated_cuda::set_seed(seed);
  Result<Tensors> tensors =
      run_case(c, *device_ops(DeviceType::kCuda).value(), {.device = kDevice, .dtype = dtype});
  EXPECT_TRUE(tensors.ok()) << c.name << ": " << tensors.error().message;
  return tensors.ok() ? std::move(tensors).value() : Tensors();
}

void expect_right(const OpCase& c, DType dtype) {
  const Tensors first = run(c, dtype, 1);
  expect_ok(check_forward(c, first));
  expect_ok(check_gradients(c, first));
  expect_ok(check_same_bits(c, first, run(c, dtype, 2)));
}

class EmulatedConv2d : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { fake_cudnn().reset(); }
  void TearDown() override { fake_cudnn().reset(); }

  dnn::PreparedConv2d prepare(const dnn::Conv2dUse& use) {
    Result<dnn::PreparedConv2d> prepared = dnn::prepare_conv2d(kDevice, use);
    EXPECT_TRUE(prepared.ok()) << prepared.error().message;
    return prepared.ok() ? *prepared : dnn::PreparedConv2d();
  }
};

TEST_P(EmulatedConv2d, ByCudnnIsTheSameFunction) {
  for (const Conv2dShape& shape : conv2d_shapes()) {
    for (const auto& [adds, is_split] :
         {std::pair(false, false), std::pair(true, false), std::pair(true, true)}) {
      const dnn::Conv2dUse use{.shape = shape, .dtype = GetParam(), .adds_dx = adds};
      const dnn::PreparedConv2d prepared = prepare(use);
      ASSERT_EQ(prepared.kernels(), kAllByCudnn) << prepared.refusals();
      fake_cudnn().executions = 0;
      expect_right(case_of(use, is_split, prepared), GetParam());
      EXPECT_EQ(fake_cudnn().executions, 6) << "three passes, twice";
    }
  }
}

// Each test has shapes of its own, since prepared ones are kept until the process ends.
dnn::Conv2dUse use_of(DType dtype, int64_t filters) {
  return {.shape = {.batch = 2,
                    .height = 5,
                    .width = 4,
                    .channels = 2,
                    .filters = filters,
                    .filter_height = 2,
                    .filter_width = 3,
                    .padding = 1},
          .dtype = dtype,
          .adds_dx = true};
}

TEST_P(EmulatedConv2d, LeavesToOurKernelsThePassThatCudnnHasNoEngineFor) {
  int64_t filters = 2;
  for (const auto& [operation, mine] :
       {std::pair(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                  Conv2dKernels{Conv2dBy::kOwn, Conv2dBy::kCudnn, Conv2dBy::kCudnn}),
        std::pair(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                  Conv2dKernels{Conv2dBy::kCudnn, Conv2dBy::kOwn, Conv2dBy::kCudnn}),
        std::pair(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                  Conv2dKernels{Conv2dBy::kCudnn, Conv2dBy::kCudnn, Conv2dBy::kOwn})}) {
    fake_cudnn().reset();
    fake_cudnn().unsupported = operation;
    const dnn::Conv2dUse use = use_of(GetParam(), ++filters);
    const dnn::PreparedConv2d prepared = prepare(use);
    EXPECT_EQ(prepared.kernels(), mine);
    EXPECT_NE(prepared.refusals().find("no kernel for this shape"), std::string::npos)
        << prepared.refusals();
    expect_right(case_of(use, false, prepared), GetParam());
    EXPECT_EQ(fake_cudnn().executions, 4) << "two passes, twice";
  }
}

TEST_P(EmulatedConv2d, LeavesAllToOurKernelsWhereEveryEngineIsNondeterministic) {
  fake_cudnn().nondeterministic = fake_cudnn().engines;
  const dnn::Conv2dUse use = use_of(GetParam(), 7);
  const dnn::PreparedConv2d prepared = prepare(use);
  EXPECT_EQ(prepared.kernels(), Conv2dKernels());
  EXPECT_EQ(prepared.workspace_bytes(), 0u);
  expect_right(case_of(use, false, prepared), GetParam());
  EXPECT_EQ(fake_cudnn().executions, 0);
}

TEST_P(EmulatedConv2d, HasAnErrorOnItsStreamWhereACallOfAnExecutionFails) {
  const dnn::Conv2dUse use = use_of(GetParam(), 8);
  const OpCase c = case_of(use, false, prepare(use));
  const auto run_on_device = [&] {
    return run_case(c, *device_ops(DeviceType::kCuda).value(),
                    {.device = kDevice, .dtype = use.dtype});
  };
  fake_cudnn().reset();
  ASSERT_TRUE(run_on_device().ok());
  const int64_t calls = fake_cudnn().calls;
  for (int64_t i = 0; i < calls; ++i) {
    fake_cudnn().reset();
    fake_cudnn().fail_at = i;
    const Result<Tensors> tensors = run_on_device();
    ASSERT_FALSE(tensors.ok()) << "call " << i;
    EXPECT_NE(tensors.error().message.find(fake_cudnn().failed), std::string::npos)
        << tensors.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, EmulatedConv2d, testing::Values(DType::kF32, DType::kBf16),
                         [](const auto& info) {
                           return info.param == DType::kF32 ? "f32" : "bf16";
                         });

}  // namespace

}  // namespace lockstep::kernels::op_cases
