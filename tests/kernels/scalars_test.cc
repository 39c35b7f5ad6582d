// Norm, clip factor and loss, on every instruction set that this machine supports.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/isa_test.h"

namespace lockstep::kernels {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kCount = 33;

class Scalars : public IsaTest {};

struct OneTensor {
  std::vector<float> parameter = std::vector<float>(kCount, 1.0f);
  std::vector<float> gradient = std::vector<float>(kCount, 0.25f);
  std::vector<float> m = std::vector<float>(kCount, 0.5f);
  std::vector<float> v = std::vector<float>(kCount, 0.125f);
  std::vector<Bf16> copy = std::vector<Bf16>(kCount);
  std::vector<UpdatedTensor> tensors{{.parameter = parameter.data(),
                                      .gradient = gradient.data(),
                                      .states = {m.data(), v.data()},
                                      .copy = copy.data(),
                                      .count = kCount,
                                      .weight_decay = 0.1f}};

  bool operator==(const OneTensor& other) const {
    return parameter == other.parameter && m == other.m && v == other.v && copy == other.copy;
  }
};

// Calls an optimizer's op.
using Update = void (*)(const OpTable&, Stream&, OneTensor&, float scale, const float* device);
template <auto kOp, class Args>
void update(const OpTable& ops, Stream& stream, OneTensor& tensor, float scale,
            const float* device) {
  (ops.*kOp)(stream, Args{.tensors = tensor.tensors,
                          .learning_rate = 0.1f,
                          .gradient_scale = scale,
                          .device_scale = device});
}
constexpr Update kUpdates[] = {update<&OpTable::adamw, AdamW>, update<&OpTable::sgd, Sgd>,
                               update<&OpTable::adagrad, Adagrad>, update<&OpTable::ftrl, Ftrl>};

TEST_P(Scalars, OptimizersTakeAFactorOfTheDevice) {
  for (const Update run : kUpdates) {
    OneTensor by_host, by_device;
    const float factor = 0.5f;
    run(ops(), stream_, by_host, 0.25f * factor, nullptr);
    run(ops(), stream_, by_device, 0.25f, &factor);
    EXPECT_TRUE(by_device == by_host);
    EXPECT_FALSE(by_device == OneTensor());
  }
}

TEST_P(Scalars, OptimizersWriteNothingWhereTheDevicesFactorIsNotFinite) {
  for (const Update run : kUpdates) {
    for (const float factor : {kNan, kInfinity}) {
      OneTensor tensor;
      run(ops(), stream_, tensor, 1.0f, &factor);
      EXPECT_TRUE(tensor == OneTensor()) << factor;
    }
  }
}

TEST_P(Scalars, ClipScaleIsTheFactorOfTheNormOfAllSquares) {
  const std::vector<float> values{3, 0, -4};
  SquareSum squares;
  const FlatTensor tensor{values.data(), 3};
  ops().squared_norm(stream_, {.tensors = {&tensor, 1}, .sum = &squares});
  float scale = 0;
  float norm = 0;
  ops().clip_scale(stream_,
                   {.squares = &squares, .scale = &scale, .norm = &norm, .clip_norm = 2.5});
  EXPECT_EQ(norm, 5.0f);
  EXPECT_EQ(scale, clip_factor(5, 2.5));
  squares.infinities = 1;
  ops().clip_scale(stream_, {.squares = &squares, .scale = &scale, .clip_norm = 1.0});
  EXPECT_TRUE(std::isnan(scale));
}

TEST(ClipFactor, BringsTheNormDownToTheBoundAndNeverUp) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0f);
  EXPECT_EQ(clip_factor(1.0, 1.0), 1.0f);
  EXPECT_EQ(clip_factor(100.0, 0.0), 1.0f);
  EXPECT_NEAR(clip_factor(4.0, 1.0), 0.25f, 1e-6f);
  EXPECT_TRUE(std::isnan(clip_factor(kNan, 1.0)));
  EXPECT_TRUE(std::isnan(clip_factor(kInfinity, 1.0)));
  const double largest = std::numeric_limits<double>::max();
  EXPECT_EQ(clip_factor(1e30, largest), 1.0f);
  EXPECT_TRUE(std::isnan(clip_factor(kInfinity, largest)));
}

TEST_P(Scalars, LossSumAddsWhatTheLossesAddUpTo) {
  std::vector<float> losses(1000);
  double sum_of_all = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    losses[i] = 1.0f / static_cast<float>(i + 1);
    sum_of_all += static_cast<double>(losses[i]);
  }
  double sum = 0.5;
  ops().loss_sum(stream_, {.losses = losses.data(), .count = 1000, .sum = &sum});
  EXPECT_EQ(sum, 0.5 + sum_of_all);
}

INSTANTIATE_TEST_SUITE_P(Isas, Scalars, each_isa(), isa_name);

}  // namespace

}  // namespace lockstep::kernels
