// Tests for what the op cases do not cover: special values, rounding, sampling, in-place use.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/kernels/isa_test.h"
#include "tests/kernels/op_cases.h"

namespace lockstep::kernels {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Values : public IsaTest {};

std::vector<uint16_t> cast_to_bf16(const OpTable& ops, Stream& stream, std::vector<float> values) {
  std::vector<Bf16> out(values.size());
  ops.cast(stream,
           {.x = values.data(), .out = out.data(), .count = static_cast<int64_t>(values.size())});
  std::vector<uint16_t> bits;
  for (const Bf16 value : out) bits.push_back(value.bits);
  return bits;
}

TEST_P(Values, CastToBf16RoundsToNearestEven) {
  // 1 + 2^-8 is halfway between 1 (0x3F80, even) and 1 + 2^-7 (0x3F81); 1 + 3 * 2^-8 is halfway
  // between 0x3F81 and 0x3F82 (even).
  const std::vector<float> values = {
      1.0f,    1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, -0.0f, 1.0f + 0x1p-8f + 0x1p-20f,
      3.4e38f, kInfinity,      -kInfinity};
  const std::vector<uint16_t> want = {0x3F80, 0x3F80, 0x3F82, 0x8000,
                                      0x3F81, 0x7F80, 0x7F80, 0xFF80};
  EXPECT_EQ(cast_to_bf16(ops(), stream_, values), want);
  // The same for whole vectors.
  std::vector<float> many;
  std::vector<uint16_t> many_want;
  for (int i = 0; i < 9; ++i) {
    many.insert(many.end(), values.begin(), values.end());
    many_want.insert(many_want.end(), want.begin(), want.end());
  }
  EXPECT_EQ(cast_to_bf16(ops(), stream_, many), many_want);
}

TEST_P(Values, CastToBf16KeepsNan) {
  for (const uint32_t bits : {0x7FC00000u, 0x7F800001u, 0xFFFFFFFFu}) {
    const std::vector<uint16_t> out =
        cast_to_bf16(ops(), stream_, std::vector<float>(17, std::bit_cast<float>(bits)));
    for (const uint16_t value : out) {
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(uint32_t{value} << 16)));
    }
  }
}

// Tests the exponential through the classifier's second pass.
TEST_P(Values, TheExponentialIsWithinThreeUlpDownToMinus87) {
  constexpr int64_t kCount = 20001;
  std::vector<float> x(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    x[static_cast<size_t>(i)] = -87.0f * static_cast<float>(i) / static_cast<float>(kCount - 1);
  }
  std::vector<float> e = x;
  const int32_t target = 0;
  const float maximum = 0.0f;
  float sum = 0.0f, target_logit = 0.0f;
  ops().classifier_sum(stream_, {.logits = e.data(),
                                 .targets = &target,
                                 .maxima = &maximum,
                                 .sums = &sum,
                                 .target_logits = &target_logit,
                                 .shape = {.rows = 1, .columns = kCount, .vocabulary = kCount}});
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(static_cast<double>(e[i]), want, want * 3.0 * 0x1p-23) << x[i];
  }
}

TEST_P(Values, ALogitOfMinusInfinityHasProbabilityZero) {
  std::vector<float> logits(19, 0.0f);
  logits[3] = -kInfinity;
  const int32_t target = 0;
  float loss = 0.0f;
  ops().classifier(stream_, {.logits = logits.data(),
                             .targets = &target,
                             .losses = &loss,
                             .shape = {.rows = 1, .columns = 19, .vocabulary = 19}});
  EXPECT_NEAR(loss, std::log(18.0f), 1e-6f);
  EXPECT_EQ(logits[3], 0.0f);
}

TEST_P(Values, NanInTheLogitsShowsInTheLoss) {
  for (const size_t at : {size_t{0}, size_t{7}, size_t{40}}) {
    std::vector<float> logits(41, 0.0f);
    logits[at] = std::nanf("");
    const int32_t target = 1;
    float loss = 0.0f;
    ops().classifier(stream_, {.logits = logits.data(),
                               .targets = &target,
                               .losses = &loss,
                               .shape = {.rows = 1, .columns = 41, .vocabulary = 41},
                               .gradient = false});
    EXPECT_TRUE(std::isnan(loss)) << at;
  }
}

TEST_P(Values, GeluIsExactAtTheEnds) {
  std::vector<float> x = {0.0f, 60.0f, -60.0f, 3e38f, -3e38f};
  std::vector<float> y(x.size()), dx(x.size());
  const std::vector<float> dy(x.size(), 1.0f);
  const int64_t count = static_cast<int64_t>(x.size());
  ops().gelu_forward(stream_, {.x = x.data(), .y = y.data(), .count = count});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 60.0f);
  EXPECT_NEAR(y[2], 0.0f, 1e-30f);
  EXPECT_EQ(y[3], 3e38f);
  EXPECT_EQ(y[4], 0.0f);
  ops().gelu_backward(stream_, {.x = x.data(), .dy = dy.data(), .dx = dx.data(), .count = count});
  EXPECT_EQ(dx[0], 0.5f);
  EXPECT_EQ(dx[1], 1.0f);
  EXPECT_NEAR(dx[2], 0.0f, 1e-30f);
  EXPECT_EQ(dx[3], 1.0f);
  EXPECT_NEAR(dx[4], 0.0f, 1e-30f);
}

TEST_P(Values, SwigluIsExactAtTheEnds) {
  const std::vector<float> gate = {0.0f, 100.0f, -100.0f, 3e38f, -3e38f};
  std::vector<float> gate_up = gate;
  gate_up.resize(2 * gate.size(), 1.0f);
  std::vector<float> y(gate.size());
  const auto width = static_cast<int64_t>(gate.size());
  ops().swiglu_forward(stream_,
                       {.gate_up = gate_up.data(), .y = y.data(), .rows = 1, .width = width});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 100.0f);
  EXPECT_NEAR(y[2], 0.0f, 1e-30f);
  EXPECT_EQ(y[3], 3e38f);
  EXPECT_EQ(y[4], 0.0f);
  const std::vector<float> dy(gate.size(), 1.0f);
  ops().swiglu_backward(stream_, {.gate_up = gate_up.data(),
                                  .dy = dy.data(),
                                  .dgate_up = gate_up.data(),  // in-place
                                  .rows = 1,
                                  .width = width});
  const std::vector<float> dgate(gate_up.begin(), gate_up.begin() + 5);
  const std::vector<float> dup(gate_up.begin() + 5, gate_up.end());
  EXPECT_EQ(dgate[0], 0.5f);
  EXPECT_EQ(dgate[1], 1.0f);
  EXPECT_NEAR(dgate[2], 0.0f, 1e-30f);
  EXPECT_EQ(dgate[3], 1.0f);
  EXPECT_EQ(dgate[4], 0.0f);
  EXPECT_EQ(dup, y) << "with up of 1";
}

TEST_P(Values, TheInverseRotaryEmbeddingTurnsBack) {
  const AttentionShape shape{.batch = 2, .sequence = 9, .heads = 3, .head_dim = 22, .kv_heads = 1};
  std::vector<float> table(static_cast<size_t>(shape.sequence * shape.head_dim));
  rotary_table({.head_dim = shape.head_dim}, shape.sequence, table.data());
  std::vector<float> qkv(static_cast<size_t>(shape.batch * shape.sequence * shape.qkv_width()));
  for (size_t i = 0; i < qkv.size(); ++i) qkv[i] = std::sin(static_cast<float>(i));
  const std::vector<float> before = qkv;
  ops().rotary(stream_, {.qkv = qkv.data(), .table = table.data(), .shape = shape});
  EXPECT_NE(qkv, before);
  ops().rotary(stream_,
               {.qkv = qkv.data(), .table = table.data(), .shape = shape, .inverse = true});
  for (size_t i = 0; i < qkv.size(); ++i) ASSERT_NEAR(qkv[i], before[i], 1e-6f) << i;
}

TEST_P(Values, OperationsMayWorkInPlace) {
  const int64_t rows = 5, width = 21, count = rows * width;
  const op_cases::OpCase fused =
      op_cases::layernorm({.rows = rows, .width = width, .residual = true});
  op_cases::Tensors apart = op_cases::make_tensors(fused, 3);
  fused.forward(ops(), stream_, apart);
  op_cases::Tensors in_place = op_cases::make_tensors(fused, 3);
  ops().layernorm_forward(stream_, {.x = in_place.at("x"),
                                    .residual = in_place.at("residual"),
                                    .residual_out = in_place.at("residual"),
                                    .weight = in_place.at("weight"),
                                    .bias = in_place.at("bias"),
                                    .y = in_place.at("x"),
                                    .rows = rows,
                                    .width = width});
  apart.get_all();
  in_place.get_all();
  EXPECT_EQ(in_place.floats.at("residual"), apart.floats.at("residual_out"));
  EXPECT_EQ(in_place.floats.at("x"), apart.floats.at("y"));
  std::vector<float> a(static_cast<size_t>(count), 1.5f);
  ops().add(stream_, {.a = a.data(), .b = a.data(), .out = a.data(), .count = count});
  EXPECT_EQ(a, std::vector<float>(a.size(), 3.0f));
}

TEST_P(Values, AdamWWritesTheCopyOfTheNewParameters) {
  std::vector<float> parameter(35, 1.0f), gradient(35, 0.3f), m(35), v(35);
  std::vector<Bf16> copy(35);
  const std::vector<UpdatedTensor> tensors = {{.parameter = parameter.data(),
                                               .gradient = gradient.data(),
                                               .states = {m.data(), v.data()},
                                               .copy = copy.data(),
                                               .count = 35}};
  ops().adamw(stream_, {.tensors = tensors, .learning_rate = 0.25f});
  for (size_t i = 0; i < copy.size(); ++i) {
    EXPECT_NEAR(parameter[i], 0.75f, 1e-5f);  // the first step is lr * sign(g)
    EXPECT_EQ(copy[i].bits, 0x3F40);          // 0.75
  }
}

// In place, at the ends and near 0, where 1 - 2 / (e^2x + 1) would cancel.
TEST_P(Values, TanhAndReluAreExactAtTheEndsAndKeepNan) {
  const std::vector<float> x = {0.0f, 1e-20f, -1e-5f, 60.0f, -3e38f, kInfinity, std::nanf("")};
  const auto count = static_cast<int64_t>(x.size());
  std::vector<float> tanh = x, relu = x;
  ops().pointwise_forward(
      stream_, {.x = tanh.data(), .y = tanh.data(), .count = count, .function = Pointwise::kTanh});
  ops().pointwise_forward(
      stream_, {.x = relu.data(), .y = relu.data(), .count = count, .function = Pointwise::kRelu});
  const std::vector<float> tanh_wanted = {0.0f, 1e-20f, -1e-5f, 1.0f, -1.0f, 1.0f};
  const std::vector<float> relu_wanted = {0.0f, 1e-20f, 0.0f, 60.0f, 0.0f, kInfinity};
  for (size_t i = 0; i < tanh_wanted.size(); ++i) {
    EXPECT_EQ(tanh[i], tanh_wanted[i]) << x[i];
    EXPECT_EQ(relu[i], relu_wanted[i]) << x[i];
  }
  EXPECT_TRUE(std::isnan(tanh.back()) && std::isnan(relu.back()));
  std::vector<float> gradient(x.size(), 2.0f);
  ops().pointwise_backward(stream_, {.y = relu.data(),
                                     .dy = gradient.data(),
                                     .dx = gradient.data(),
                                     .count = count,
                                     .function = Pointwise::kRelu});
  EXPECT_EQ(gradient, (std::vector<float>{0, 2, 0, 2, 0, 2, 2}));
}

TEST_P(Values, TheFirstOfSeveralLargestLogitsIsTheAnswer) {
  const std::vector<float> logits = {1, 3, 3, 2, std::nanf("")};
  for (int32_t target = -1; target < 5; ++target) {
    float hit = -1;
    ops().classifier_hits(stream_, {.logits = logits.data(),
                                    .targets = &target,
                                    .hits = &hit,
                                    .shape = {.rows = 1, .columns = 5, .vocabulary = 5}});
    EXPECT_EQ(hit, target == 1 ? 1.0f : 0.0f) << target;
  }
}

TEST_P(Values, NothingHappensForNoElements) {
  ops().matmul_forward(stream_, {});
  ops().matmul_backward(stream_, {});
  ops().attention_forward(stream_, {});
  ops().embedding_forward(stream_, {});
  ops().embedding_backward(stream_, {});
  ops().layernorm_forward(stream_, {});
  ops().rmsnorm_forward(stream_, {});
  ops().gelu_forward(stream_, {});
  ops().pointwise_forward(stream_, {});
  ops().pointwise_backward(stream_, {});
  ops().swiglu_forward(stream_, {});
  ops().swiglu_backward(stream_, {});
  ops().rotary(stream_, {});
  ops().classifier(stream_, {});
  ops().classifier_hits(stream_, {});
  ops().squared_error(stream_, {});
  ops().adamw(stream_, {});
  ops().sgd(stream_, {});
  ops().adagrad(stream_, {});
  ops().ftrl(stream_, {});
  ops().add(stream_, {});
  SquareSum sum;
  ops().squared_norm(stream_, {.sum = &sum});
  EXPECT_EQ(value_of(sum), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Isas, Values, each_isa(), isa_name);

struct SampleCase {
  std::vector<float> logits;
  float uniform;
  float temperature;
  int64_t top_k;
};

int32_t sampled(SampleCase c) {
  const int64_t vocabulary = static_cast<int64_t>(c.logits.size());
  std::vector<float> scratch(c.logits.size());
  int32_t token = -1;
  Stream stream;
  cpu_ops().sample(stream, {.logits = c.logits.data(),
                            .uniforms = &c.uniform,
                            .tokens = &token,
                            .rows = 1,
                            .vocabulary = vocabulary,
                            .stride = vocabulary,
                            .temperature = c.temperature,
                            .top_k = c.top_k,
                            .workspace = {scratch.data(), sample_workspace(vocabulary)}});
  return token;
}

TEST(Sample, FollowsTheCumulatedProbabilities) {
  // Probabilities 0.2, 0.3, 0.5.
  const std::vector<float> logits = {std::log(0.2f), std::log(0.3f), std::log(0.5f)};
  EXPECT_EQ(sampled({logits, 0.0f, 1.0f, 0}), 0);
  EXPECT_EQ(sampled({logits, 0.19f, 1.0f, 0}), 0);
  EXPECT_EQ(sampled({logits, 0.21f, 1.0f, 0}), 1);
  EXPECT_EQ(sampled({logits, 0.49f, 1.0f, 0}), 1);
  EXPECT_EQ(sampled({logits, 0.51f, 1.0f, 0}), 2);
  EXPECT_EQ(sampled({logits, 0.99999994f, 1.0f, 0}), 2);
}

TEST(Sample, LowTemperatureSharpens) {
  // Squared and normalized: 0.04, 0.09, 0.25 of 0.38.
  const std::vector<float> logits = {std::log(0.2f), std::log(0.3f), std::log(0.5f)};
  EXPECT_EQ(sampled({logits, 0.11f, 0.5f, 0}), 1);
  EXPECT_EQ(sampled({logits, 0.35f, 0.5f, 0}), 2);
}

TEST(Sample, TemperatureZeroTakesTheFirstOfTheLargest) {
  EXPECT_EQ(sampled({{1.0f, 4.0f, 4.0f}, 0.9f, 0.0f, 0}), 1);
}

TEST(Sample, TopKKeepsTheKLargestAndOfEqualsTheFirst) {
  const std::vector<float> logits = {1.0f, 1.0f, 0.0f, 1.0f};
  EXPECT_EQ(sampled({logits, 0.49f, 1.0f, 2}), 0);
  EXPECT_EQ(sampled({logits, 0.51f, 1.0f, 2}), 1);
  EXPECT_EQ(sampled({logits, 0.999f, 1.0f, 2}), 1);
  EXPECT_EQ(sampled({logits, 0.999f, 1.0f, 1}), 0);
  EXPECT_EQ(sampled({logits, 0.999f, 1.0f, 9}), 3);
}

std::vector<float> table_of(const RotaryFrequencies& frequencies, int64_t positions) {
  std::vector<float> table(static_cast<size_t>(positions * frequencies.head_dim));
  rotary_table(frequencies, positions, table.data());
  return table;
}

TEST(RotaryTable, HasTheCosinesAndSinesOfEachPositionAlsoFarAway) {
  constexpr int64_t kPositions = 100'001;
  const std::vector<float> table = table_of({.head_dim = 4, .base = 10000.0}, kPositions);
  for (const int64_t t : {0, 1, 3, 100'000}) {
    const float* row = table.data() + t * 4;
    const auto position = static_cast<double>(t);
    EXPECT_EQ(row[0], static_cast<float>(std::cos(position)));
    EXPECT_EQ(row[1], static_cast<float>(std::cos(position * 0.01)));
    EXPECT_EQ(row[2], static_cast<float>(std::sin(position)));
    EXPECT_EQ(row[3], static_cast<float>(std::sin(position * 0.01)));
  }
}

// With base 100 and 8 values per head, the frequencies are 1, 0.316, 0.1 and 0.0316, which give
// 10.2, 3.22, 1.02 and 0.32 turns within 64 positions.
TEST(RotaryTable, IsStretchedWhereFrequenciesAreLow) {
  const RotaryFrequencies plain{.head_dim = 8, .base = 100.0};
  RotaryFrequencies stretched = plain;
  stretched.factor = 4.0;
  stretched.original_context = 64;
  const std::vector<float> before = table_of(plain, 2), after = table_of(stretched, 2);
  const auto frequency = [](const std::vector<float>& table, size_t i) {
    return std::atan2(table[8 + 4 + i], table[8 + i]);
  };
  EXPECT_EQ(frequency(after, 0), frequency(before, 0));
  for (const size_t i : {size_t{1}, size_t{2}}) {
    const double f = static_cast<double>(frequency(before, i));
    const double share = (64.0 * f / 6.283185307179586 - 1.0) / 3.0;
    EXPECT_NEAR(frequency(after, i), (1.0 - share) * f / 4.0 + share * f, 1e-7);
  }
  EXPECT_NEAR(frequency(after, 3), frequency(before, 3) / 4.0f, 1e-8f);
}

TEST(MatmulSupport, SaysWhatWasChosenAndGivesWorkspaceForBf16Alone) {
  const MatmulSupport support = cpu_matmul_support();
  EXPECT_FALSE(support.library.empty());
  EXPECT_FALSE(support.isa.empty());
  const MatmulShape shape{4, 5, 6};
  EXPECT_EQ(matmul_forward_workspace(shape, Precision::kF32, DeviceType::kCpu), 0u);
  EXPECT_GE(matmul_forward_workspace(shape, Precision::kBf16, DeviceType::kCpu),
            (4u * 6u + 5u * 6u) * 2u);
}

}  // namespace

}  // namespace lockstep::kernels
