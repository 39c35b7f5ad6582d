// Checks the roofline's counts against manual calculations, and that every op has a row that calls
// it.
#include "bench/kernels/roofline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "bench/kernels/bench_device.h"
#include "bench/kernels/peaks.h"
#include "bench/kernels/rows.h"
#include "bench/kernels/timing.h"
#include "tests/kernels/op_names.h"

namespace lockstep::bench {
namespace {

// Tensors that are never read: only whether they are null, and their dtype, matters.
constexpr int64_t kRows = 2;
float f32_element = 0;
kernels::Bf16 bf16_element;
float* const f32 = &f32_element;
kernels::Bf16* const bf16 = &bf16_element;
const int32_t tokens[1] = {};
double sum = 0;

Work memory_and_arithmetic(double bytes, double other) {
  return {.bytes = bytes, .other_flops = other};
}

::testing::AssertionResult is(const Work& found, const Work& expected) {
  if (found == expected) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << found.bytes << " bytes, " << found.product_flops
                                       << " of products, " << found.other_flops << " other";
}

TEST(Work, OfEmbeddingsCountsTheRowsThatTheTokensCanName) {
  EXPECT_TRUE(is(work_of(kernels::EmbeddingForward{.tokens = tokens,
                                                   .token_table = f32,
                                                   .position_table = f32,
                                                   .out = bf16,
                                                   .batch = 2,
                                                   .sequence = 3,
                                                   .width = 4,
                                                   .vocabulary = 5}),
                 memory_and_arithmetic(24 + 5 * 4 * 4 + 3 * 4 * 4 + 6 * 4 * 2, 24)));
  EXPECT_TRUE(is(work_of(kernels::EmbeddingBackward{.tokens = tokens,
                                                    .dout = bf16,
                                                    .dtoken_table = f32,
                                                    .dposition_table = f32,
                                                    .batch = 2,
                                                    .sequence = 3,
                                                    .width = 4,
                                                    .vocabulary = 5}),
                 memory_and_arithmetic(24 + 48 + 2 * 80 + 2 * 48, 48)));
  EXPECT_EQ(work_of(kernels::EmbeddingForward{.token_table = f32,
                                              .out = f32,
                                              .batch = 1,
                                              .sequence = 3,
                                              .width = 4,
                                              .vocabulary = 50257})
                .bytes,
            3 * 4 * 4 + 3 * 4 * 4)
      << "three tokens name no more than three rows";
}

TEST(Work, OfNormsCountsTheResidualWhereThereIsOne) {
  kernels::LayerNormForward forward{.x = bf16,
                                    .residual = bf16,
                                    .residual_out = bf16,
                                    .weight = f32,
                                    .bias = f32,
                                    .y = bf16,
                                    .mean = f32,
                                    .rstd = f32,
                                    .rows = kRows,
                                    .width = 4};
  EXPECT_TRUE(is(work_of(forward), memory_and_arithmetic(4 * 16 + 2 * 16 + 2 * 8, 9 * 8)));
  forward.residual = forward.residual_out = forward.mean = forward.rstd = nullptr;
  EXPECT_TRUE(is(work_of(forward), memory_and_arithmetic(2 * 16 + 2 * 16, 8 * 8)));
  EXPECT_TRUE(is(work_of(kernels::LayerNormBackward{.dy = bf16,
                                                    .h = bf16,
                                                    .weight = f32,
                                                    .mean = f32,
                                                    .rstd = f32,
                                                    .dresidual = bf16,
                                                    .dx = bf16,
                                                    .dweight = f32,
                                                    .dbias = f32,
                                                    .rows = kRows,
                                                    .width = 4}),
                 memory_and_arithmetic(4 * 16 + 16 + 2 * 8 + 4 * 16, 14 * 8)));
  EXPECT_TRUE(is(work_of(kernels::RmsNormForward{.x = bf16,
                                                 .residual = bf16,
                                                 .residual_out = bf16,
                                                 .weight = f32,
                                                 .y = bf16,
                                                 .rrms = f32,
                                                 .rows = kRows,
                                                 .width = 4}),
                 memory_and_arithmetic(4 * 16 + 16 + 8, 5 * 8)));
  EXPECT_TRUE(is(work_of(kernels::RmsNormBackward{.dy = bf16,
                                                  .h = bf16,
                                                  .weight = f32,
                                                  .rrms = f32,
                                                  .dresidual = bf16,
                                                  .dx = bf16,
                                                  .dweight = f32,
                                                  .rows = kRows,
                                                  .width = 4}),
                 memory_and_arithmetic(4 * 16 + 16 + 8 + 2 * 16, 10 * 8)));
}

TEST(Work, OfProductsKnowsTheirFactorsAndWhatIsLeftOut) {
  kernels::MatmulForward forward{.x = bf16,
                                 .weight = bf16,
                                 .bias = bf16,
                                 .y = bf16,
                                 .pre_activation = bf16,
                                 .m = 2,
                                 .n = 3,
                                 .k = 4,
                                 .activation = kernels::Activation::kGelu};
  EXPECT_TRUE(is(work_of(forward), {.bytes = 16 + 24 + 6 + 12 + 12,
                                    .product_flops = 48,
                                    .factors = kernels::DType::kBf16,
                                    .other_flops = 6 + 9 * 6}));
  EXPECT_TRUE(
      is(work_of(kernels::MatmulForward{.x = f32, .weight = f32, .y = f32, .m = 2, .n = 3, .k = 4}),
         {.bytes = 32 + 48 + 24, .product_flops = 48}));
  EXPECT_TRUE(is(work_of(kernels::MatmulForward{.x = f32,
                                                .weight = bf16,
                                                .y = f32,
                                                .m = 2,
                                                .n = 3,
                                                .k = 4,
                                                .precision = kernels::Precision::kBf16}),
                 {.bytes = 32 + 24 + 24, .product_flops = 48, .factors = kernels::DType::kBf16}));
  kernels::MatmulBackward backward{.dy = bf16,
                                   .x = bf16,
                                   .weight = bf16,
                                   .x_pre_activation = bf16,
                                   .dx = bf16,
                                   .dweight = f32,
                                   .dbias = f32,
                                   .m = 2,
                                   .n = 3,
                                   .k = 4};
  EXPECT_TRUE(is(work_of(backward), {.bytes = 12 + 16 + 24 + 16 + 16 + 2 * 48 + 2 * 12,
                                     .product_flops = 96,
                                     .factors = kernels::DType::kBf16,
                                     .other_flops = 17 * 8 + 12 + 6}));
  backward.dx = backward.dbias = nullptr;
  backward.x_pre_activation = nullptr;
  EXPECT_TRUE(is(work_of(backward), {.bytes = 12 + 16 + 2 * 48,
                                     .product_flops = 48,
                                     .factors = kernels::DType::kBf16,
                                     .other_flops = 12}));
}

TEST(Work, OfActivations) {
  EXPECT_TRUE(is(work_of(kernels::GeluForward{.x = bf16, .y = bf16, .count = 10}),
                 memory_and_arithmetic(40, 90)));
  EXPECT_TRUE(is(work_of(kernels::GeluForward{.x = f32, .y = f32, .count = 10}),
                 memory_and_arithmetic(80, 90)));
  EXPECT_TRUE(is(work_of(kernels::GeluBackward{.x = bf16, .dy = bf16, .dx = bf16, .count = 10}),
                 memory_and_arithmetic(60, 170)));
  EXPECT_TRUE(
      is(work_of(kernels::SwigluForward{.gate_up = bf16, .y = bf16, .rows = kRows, .width = 5}),
         memory_and_arithmetic(40 + 20, 50)));
  EXPECT_TRUE(is(work_of(kernels::SwigluBackward{
                     .gate_up = bf16, .dy = bf16, .dgate_up = bf16, .rows = kRows, .width = 5}),
                 memory_and_arithmetic(40 + 20 + 40, 110)));
}

TEST(Work, OfAnMlpsOperations) {
  kernels::PointwiseForward forward{.x = bf16, .y = bf16, .count = 10};
  EXPECT_TRUE(is(work_of(forward), memory_and_arithmetic(40, 10)));
  forward.function = kernels::Pointwise::kTanh;
  EXPECT_TRUE(is(work_of(forward), memory_and_arithmetic(40, 50)));
  kernels::PointwiseBackward backward{.y = f32, .dy = f32, .dx = f32, .count = 10};
  EXPECT_TRUE(is(work_of(backward), memory_and_arithmetic(120, 10)));
  backward.function = kernels::Pointwise::kTanh;
  EXPECT_TRUE(is(work_of(backward), memory_and_arithmetic(120, 30)));
  float number = 0;
  kernels::SquaredError error{
      .outputs = bf16, .values = &number, .losses = &number, .rows = kRows, .columns = 5};
  EXPECT_TRUE(is(work_of(error), memory_and_arithmetic(2 * 20 + 40 + 8, 40)));
  error.gradient = false;
  EXPECT_TRUE(is(work_of(error), memory_and_arithmetic(20 + 40 + 8, 30)));
  const int32_t target = 0;
  EXPECT_TRUE(is(work_of(kernels::ClassifierHits{.logits = f32,
                                                 .targets = &target,
                                                 .hits = &number,
                                                 .shape = {.rows = kRows, .columns = 5}}),
                 memory_and_arithmetic(40 + 8 + 8, 10)));
}

TEST(Work, OfAttentionCountsThePairsThatAreNotMasked) {
  const kernels::AttentionShape grouped{
      .batch = 1, .sequence = 4, .heads = 2, .head_dim = 8, .kv_heads = 1};
  const double pairs = 2 * 10;
  EXPECT_TRUE(
      is(work_of(kernels::AttentionForward{.qkv = bf16, .out = bf16, .lse = f32, .shape = grouped}),
         {.bytes = 4 * 32 * 2 + 4 * 16 * 2 + 4 * 2 * 4,
          .product_flops = 4 * 8 * pairs,
          .factors = kernels::DType::kBf16,
          .other_flops = 5 * pairs}));
  EXPECT_TRUE(
      is(work_of(kernels::AttentionBackward{
             .dout = bf16, .qkv = bf16, .out = bf16, .lse = f32, .dqkv = bf16, .shape = grouped}),
         {.bytes = 2 * 4 * 32 * 2 + 2 * 4 * 16 * 2 + 4 * 2 * 4,
          .product_flops = 10 * 8 * pairs,
          .factors = kernels::DType::kBf16,
          .other_flops = 6 * pairs + 2 * 4 * 16}));
  const kernels::AttentionShape gpt2{
      .batch = 64, .sequence = 1024, .heads = 12, .head_dim = 64, .kv_heads = 12};
  EXPECT_EQ(
      work_of(kernels::AttentionForward{.qkv = bf16, .out = bf16, .shape = gpt2}).product_flops,
      103'179'878'400.0);
  const kernels::AttentionShape turned{
      .batch = 1, .sequence = 2, .heads = 4, .head_dim = 6, .kv_heads = 2};
  EXPECT_TRUE(is(work_of(kernels::Rotary{.qkv = bf16, .table = f32, .shape = turned}),
                 memory_and_arithmetic(2 * 2 * 36 * 2 + 2 * 6 * 4, 3 * 2 * 36)));
}

TEST(Work, OfTheClassifierKnowsWhetherThereIsAGradient) {
  const kernels::ClassifierShape shape{.rows = kRows, .columns = 6, .vocabulary = 5};
  kernels::Classifier fused{.logits = bf16, .targets = tokens, .losses = f32, .shape = shape};
  EXPECT_TRUE(is(work_of(fused), memory_and_arithmetic(2 * 24 + 8 + 8, 6 * 12)));
  fused.gradient = false;
  EXPECT_TRUE(is(work_of(fused), memory_and_arithmetic(24 + 8 + 8, 4 * 12)));
  EXPECT_TRUE(is(work_of(kernels::ClassifierMax{.logits = bf16, .maxima = f32, .shape = shape}),
                 memory_and_arithmetic(24 + 8, 12)));
  EXPECT_TRUE(is(work_of(kernels::ClassifierSum{.logits = bf16,
                                                .targets = tokens,
                                                .maxima = f32,
                                                .sums = f32,
                                                .target_logits = f32,
                                                .shape = shape}),
                 memory_and_arithmetic(2 * 24 + 4 * 8, 3 * 12)));
  kernels::ClassifierFinish finish{.logits = bf16,
                                   .targets = tokens,
                                   .sums = f32,
                                   .target_logits = f32,
                                   .losses = f32,
                                   .shape = shape};
  EXPECT_TRUE(is(work_of(finish), memory_and_arithmetic(2 * 24 + 4 * 8, 2 * 12)));
  finish.gradient = false;
  EXPECT_TRUE(is(work_of(finish), memory_and_arithmetic(4 * 8, 0)));
}

TEST(Work, OfTheUpdate) {
  const kernels::UpdatedTensor tensors[] = {
      {.parameter = f32, .gradient = f32, .states = {f32, f32}, .copy = bf16, .count = 3},
      {.parameter = f32, .gradient = f32, .states = {f32, f32}, .count = 5}};
  EXPECT_TRUE(is(work_of(kernels::AdamW{.tensors = tensors}),
                 memory_and_arithmetic(3 * 28 + 3 * 2 + 5 * 28, 17 * 8)));
  const kernels::UpdatedTensor plain[] = {{.parameter = f32, .gradient = f32, .count = 5}};
  EXPECT_TRUE(is(work_of(kernels::Sgd{.tensors = plain}), memory_and_arithmetic(5 * 12, 5 * 5)));
  const kernels::UpdatedTensor kept[] = {
      {.parameter = f32, .gradient = f32, .states = {f32}, .count = 5}};
  EXPECT_TRUE(is(work_of(kernels::Sgd{.tensors = kept, .momentum = 0.9f, .nesterov = true}),
                 memory_and_arithmetic(5 * 20, 9 * 5)));
  EXPECT_TRUE(
      is(work_of(kernels::Adagrad{.tensors = kept}), memory_and_arithmetic(5 * 20, 10 * 5)));
  const kernels::UpdatedTensor two[] = {
      {.parameter = f32, .gradient = f32, .states = {f32, f32}, .count = 5}};
  EXPECT_TRUE(is(work_of(kernels::Ftrl{.tensors = two}), memory_and_arithmetic(5 * 28, 17 * 5)));
  const kernels::FlatTensor flat[] = {{f32, 3}, {f32, 5}};
  kernels::SquareSum squares;
  EXPECT_TRUE(is(work_of(kernels::SquaredNorm{.tensors = flat, .sum = &squares}),
                 memory_and_arithmetic(32 + 2 * 28 * 8, 7 * 8)));
  EXPECT_TRUE(is(work_of(kernels::ClipScale{.squares = &squares, .scale = f32, .norm = f32}),
                 memory_and_arithmetic(28 * 8 + 4 + 4, 1)));
  EXPECT_TRUE(is(work_of(kernels::InverseNorm{.squares = &squares, .factor = f32}),
                 memory_and_arithmetic(28 * 8 + 4, 3)));
  EXPECT_TRUE(is(work_of(kernels::LossSum{.losses = f32, .count = 5, .sum = &sum}),
                 memory_and_arithmetic(20 + 16, 5)));
}

TEST(Work, OfElementsAndDraws) {
  EXPECT_TRUE(is(work_of(kernels::Fill{.out = bf16, .count = 10}), memory_and_arithmetic(20, 0)));
  EXPECT_TRUE(
      is(work_of(kernels::Cast{.x = f32, .out = bf16, .count = 10}), memory_and_arithmetic(60, 0)));
  EXPECT_TRUE(is(work_of(kernels::Scale{.x = bf16, .out = bf16, .count = 10}),
                 memory_and_arithmetic(40, 10)));
  EXPECT_TRUE(is(work_of(kernels::Add{.a = bf16, .b = bf16, .out = bf16, .count = 10}),
                 memory_and_arithmetic(60, 10)));
  EXPECT_TRUE(is(work_of(kernels::CopyRows{.from = f32, .to = f32, .rows = 3, .width = 5}),
                 memory_and_arithmetic(120, 0)));
  int32_t drawn = 0;
  EXPECT_TRUE(is(work_of(kernels::Sample{.logits = bf16,
                                         .uniforms = f32,
                                         .tokens = &drawn,
                                         .rows = kRows,
                                         .vocabulary = 5,
                                         .stride = 8}),
                 memory_and_arithmetic(20 + 8 + 8, 50)));
}

TEST(Roofline, TheBoundIsTheLongestOfTheThree) {
  const Peaks peaks{.bytes = 10, .f32_flops = 5, .bf16_flops = 50};
  const Work work{
      .bytes = 100, .product_flops = 600, .factors = kernels::DType::kBf16, .other_flops = 10};
  EXPECT_EQ(bound_of(work, peaks).seconds, 12);
  EXPECT_STREQ(bound_of(work, peaks).by, "products");
  Work other = work;
  other.factors = kernels::DType::kF32;
  EXPECT_EQ(bound_of(other, peaks).seconds, 120) << "in fp32 products are slower";
  other = work;
  other.bytes = 130;
  EXPECT_STREQ(bound_of(other, peaks).by, "memory");
  other.other_flops = 100;
  EXPECT_STREQ(bound_of(other, peaks).by, "arithmetic");
  EXPECT_EQ(bound_of(work, {.bytes = 10}).seconds, 10) << "an unknown peak bounds nothing";
}

constexpr Model kTiny{.batch = 2,
                      .sequence = 4,
                      .width = 16,
                      .heads = 2,
                      .layers = 1,
                      .vocabulary = 11,
                      .columns = 12,
                      .head_rows = 4};

TEST(Rows, EveryOperationHasOneAndNothingElse) {
  std::set<std::string> rows;
  for (const Row& row : rows_of(kTiny)) rows.insert(row.op);
  for (const std::string& op : kernels::op_cases::op_names()) {
    EXPECT_EQ(rows.erase(op), 1u) << op << " has no row in bench/kernels/rows_*.cc";
  }
  EXPECT_EQ(rows, std::set<std::string>()) << "not in kernels/ops/op_table.h";
}

TEST(Rows, EachCallsTheOperationOfItsNameOnSomethingAndCanBeTimed) {
  const std::vector<std::string> ops = kernels::op_cases::op_names();
  Result<BenchDevice> bench_device = open_bench_device(kernels::DeviceType::kCpu);
  ASSERT_TRUE(bench_device.ok());
  for (const Row& row : rows_of(kTiny)) {
    Memory memory(*bench_device);
    const Call call = row.prepare(memory);
    ASSERT_TRUE(memory.status().ok()) << memory.status().error().message;
    EXPECT_EQ(ops.at(call.op), row.op);
    EXPECT_GT(call.work.bytes, 0) << row.op;
    const auto spreads = sample(*bench_device, {call.run}, {.seconds = 0});
    ASSERT_TRUE(spreads.ok()) << row.op;
    EXPECT_GT(spreads->front().median, 0) << row.op;
  }
}

TEST(Rows, InBf16MoveHalfTheBytesOfActivations) {
  Result<BenchDevice> bench_device = open_bench_device(kernels::DeviceType::kCpu);
  ASSERT_TRUE(bench_device.ok());
  Model half = kTiny;
  half.dtype = kernels::DType::kBf16;
  const std::vector<Row> all = rows_of(kTiny), halves = rows_of(half);
  ASSERT_EQ(all.size(), halves.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].op != "gelu_forward" && all[i].op != "add") continue;
    Memory memory(*bench_device);
    EXPECT_EQ(all[i].prepare(memory).work.bytes, 2 * halves[i].prepare(memory).work.bytes);
  }
}

TEST(Memory, KeepsItsFirstFailure) {
  Result<BenchDevice> bench_device = open_bench_device(kernels::DeviceType::kCpu);
  ASSERT_TRUE(bench_device.ok());
  Memory memory(*bench_device);
  EXPECT_FALSE(memory.numbers(int64_t{1} << 55, kernels::DType::kF32));
  EXPECT_EQ(memory.floats(1), nullptr);
  ASSERT_FALSE(memory.status().ok());
  EXPECT_NE(memory.status().error().message.find("a bench's tensor"), std::string::npos);
}

TEST(Peaks, OfThisDeviceAreMeasuredAndThoseOfKnownOnesLookedUp) {
  Result<BenchDevice> bench_device = open_bench_device(kernels::DeviceType::kCpu);
  ASSERT_TRUE(bench_device.ok());
  const auto peaks = measure_peaks(
      *bench_device, {.copied_bytes = 1 << 16, .product = {64, 64, 64}}, {.seconds = 0.01});
  ASSERT_TRUE(peaks.ok());
  EXPECT_GT(peaks->bytes, 0);
  EXPECT_GT(peaks->f32_flops, 0);
  EXPECT_EQ(datasheet_peaks("NVIDIA H200").bytes, 4.8e12);
  EXPECT_EQ(datasheet_peaks("NVIDIA H100 80GB HBM3").bf16_flops, 989e12);
  EXPECT_EQ(datasheet_peaks("a CPU").bytes, 0);
}

TEST(Timing, TheSpreadIsTheMiddleHalf) {
  const Spread spread = spread_of({5, 1, 4, 2, 3});
  EXPECT_EQ(spread.low, 2);
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.high, 4);
}

}  // namespace
}  // namespace lockstep::bench
