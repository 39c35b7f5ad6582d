#include "agent/train/matmul_peak.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace lockstep::train {
namespace {

// Advances by one second with every read.
class TickingClock final : public Clock {
 public:
  TimePoint now() const override {
    now_ += std::chrono::seconds(1);
    return now_;
  }
  WallTime wall_now() const override { return {}; }

 private:
  mutable TimePoint now_{};
};

TEST(MatmulPeak, CountsTheFlopsOfARound) {
  kernels::Stream stream;
  const TickingClock clock;
  for (const kernels::DType dtype : {kernels::DType::kF32, kernels::DType::kBf16}) {
    const MatmulPeakOptions options{.shape = {20, 30, 40}, .dtype = dtype, .rounds = 2, .times = 3};
    const Result<double> peak = matmul_peak(kernels::cpu_ops(), stream, options, clock);
    ASSERT_TRUE(peak.ok()) << peak.error().message;
    EXPECT_EQ(*peak, 2.0 * 20 * 30 * 40 * 3);
  }
}

int calls = 0;

TEST(MatmulPeak, MultipliesRandomNumbersAndWarmsUpFirst) {
  calls = 0;
  kernels::OpTable ops = kernels::cpu_ops();
  ops.matmul_forward = [](kernels::Stream&, const kernels::MatmulForward& args) {
    ++calls;
    const auto* x = static_cast<const kernels::Bf16*>(args.x.data);
    int64_t zeros = 0;
    for (int64_t i = 0; i < args.m * args.k; ++i) {
      const uint32_t wide = static_cast<uint32_t>(x[i].bits) << 16;
      float value = 0;
      std::memcpy(&value, &wide, sizeof value);
      EXPECT_LE(std::abs(value), 1.0f);
      zeros += value == 0 ? 1 : 0;
    }
    EXPECT_LT(zeros, args.m * args.k / 100);
  };
  kernels::Stream stream;
  const SystemClock clock;
  ASSERT_TRUE(
      matmul_peak(ops, stream, {.shape = {64, 64, 64}, .rounds = 2, .times = 3}, clock).ok());
  EXPECT_EQ(calls, 9);
}

}  // namespace
}  // namespace lockstep::train
