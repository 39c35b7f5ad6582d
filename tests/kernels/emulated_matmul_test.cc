// matmul.cu on the emulated device with a fake cuBLASLt, against double precision: the library's
// epilogues, our own kernels for what it refuses, and both dtypes.
#include <gtest/gtest.h>

#include <numbers>

#include "kernels/ops/blas/blas.h"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/matmul_geometry.h"
#include "tests/kernels/device_values.h"
#include "tests/support/emulated_cuda/devices.h"
#include "tests/support/emulated_cuda/fake_cublaslt.h"

namespace lockstep::kernels {

namespace {

using test::DeviceValues;
using test::fake_cublaslt;
using test::random_doubles;

constexpr Device kDevice{DeviceType::kCuda, 0};

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

double gelu(double x) {
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(u));
}
double gelu_slope(double x) {
  constexpr double kStep = 1e-5;
  return (gelu(x + kStep) - gelu(x - kStep)) / (2.0 * kStep);
}

struct Case {
  MatmulShape shape;
  DType dtype = DType::kF32;
  bool bias = true;
  DType bias_dtype = DType::kF32;
  bool gelu = false;
  bool keep_pre = true;  // with gelu: store pre_activation
  size_t offset = 0;     // of tensors from the start of their buffers, in elements
};

std::string name_of(const Case& c) {
  return std::string(c.dtype == DType::kF32 ? "f32" : "bf16") + " M=" + std::to_string(c.shape.m) +
         " N=" + std::to_string(c.shape.n) + " K=" + std::to_string(c.shape.k) +
         (c.bias ? c.bias_dtype == DType::kF32 ? " bias f32" : " bias bf16" : "") +
         (c.gelu ? c.keep_pre ? " gelu, kept" : " gelu" : "") + (c.offset > 0 ? " unaligned" : "");
}

// The refusals of one fake library. Algorithms are cached for the process, so each library has its
// own shapes (more_depth).
struct Library {
  const char* name;
  int64_t more_depth;
  bool refuse_gelu = false, refuse_odd_bf16 = false, refuse_epilogues = false, refuse_all = false;
  cublasStatus_t refusal = CUBLAS_STATUS_NOT_SUPPORTED;
};
constexpr Library kLibraries[] = {
    {.name = "refuses nothing", .more_depth = 0},
    {.name = "refuses GELU", .more_depth = 1, .refuse_gelu = true},
    {.name = "refuses odd sizes", .more_depth = 2, .refuse_odd_bf16 = true},
    {.name = "refuses every epilogue as an invalid value",
     .more_depth = 3,
     .refuse_epilogues = true,
     .refusal = CUBLAS_STATUS_INVALID_VALUE},
    {.name = "refuses everything", .more_depth = 4, .refuse_all = true}};

void play(const Library& library) {
  fake_cublaslt().reset();
  fake_cublaslt().refuse_gelu = library.refuse_gelu;
  fake_cublaslt().refuse_odd_bf16 = library.refuse_odd_bf16;
  fake_cublaslt().refuse_epilogues = library.refuse_epilogues;
  fake_cublaslt().refuse_all = library.refuse_all;
  fake_cublaslt().refusal = library.refusal;
}

std::vector<Case> cases_of(const Library& library) {
  std::vector<Case> cases;
  for (MatmulShape shape :
       {MatmulShape{1, 1, 1}, MatmulShape{1, 17, 5}, MatmulShape{7, 1, 33}, MatmulShape{33, 48, 31},
        MatmulShape{64, 96, 32}, MatmulShape{70, 67, 129}, MatmulShape{257, 3, 65}}) {
    shape.k += 8 * library.more_depth;
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const bool gelu : {false, true}) {
        cases.push_back({.shape = shape, .dtype = dtype, .bias_dtype = dtype, .gelu = gelu});
      }
      cases.push_back({.shape = shape, .dtype = dtype, .bias = false});
      cases.push_back({.shape = shape, .dtype = dtype, .bias = false, .gelu = true});
      cases.push_back({.shape = shape, .dtype = dtype, .gelu = true, .keep_pre = false});
      cases.push_back(
          {.shape = shape, .dtype = dtype, .bias_dtype = dtype, .gelu = true, .offset = 1});
    }
  }
  return cases;
}

struct Bound {
  double relative;  // relative to the largest value, for fp32 sums
  double rounding;  // relative to the value before and after the last steps, for the results' dtype
};
Bound bound_of(DType dtype) {
  return dtype == DType::kF32 ? Bound{5e-6, 0.0} : Bound{5e-6, 1.0 / 256.0};
}

double largest(const std::vector<double>& values) {
  double result = 0.1;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

// `before` are the values before the last step, which may have been rounded there.
void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                 const std::vector<double>& before, const Bound& bound, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const double limit = bound.relative * largest(want);
  for (size_t i = 0; i < want.size(); ++i) {
    const double rounding = bound.rounding * (std::abs(want[i]) + 1.2 * std::abs(before[i]));
    ASSERT_NEAR(got[i], want[i], limit + rounding) << what << " [" << i << "]";
  }
}

// Holds a stream and a workspace for all calls of a test.
class EmulatedMatmul : public testing::Test {
 protected:
  void SetUp() override {
    Result<Stream> stream = Stream::create(kDevice);
    ASSERT_TRUE(stream.ok());
    stream_ = std::move(stream).value();
    const MatmulShape most{257, 128, 256};
    const size_t bytes =
        std::max(matmul_forward_workspace(most, Precision::kF32, DeviceType::kCuda),
                 matmul_backward_workspace(most, Precision::kF32, DeviceType::kCuda));
    Result<Buffer> buffer = Buffer::allocate(kDevice, bytes, "a workspace");
    ASSERT_TRUE(buffer.ok());
    workspace_ = std::move(buffer).value();
  }
  void TearDown() override { fake_cublaslt().reset(); }

  DeviceValues values(const Case& c, int64_t count, double magnitude) {
    return DeviceValues(stream_, c.dtype, random_doubles(count, magnitude, random_), c.offset);
  }
  void expect_done(const std::string& what) {
    const Status status = stream_.synchronize();
    ASSERT_TRUE(status.ok()) << what << ": " << status.error().message;
  }

  Stream stream_;
  Buffer workspace_;
  Random random_{11};
};

// y and GELU's input, computed from the stored tensors.
struct Sums {
  std::vector<double> linear, y;
};
Sums expected_forward(const Case& c, const std::vector<double>& x, const std::vector<double>& w,
                      const std::vector<double>& bias) {
  const auto [m, n, k] = c.shape;
  Sums sums{std::vector<double>(at(m * n)), std::vector<double>(at(m * n))};
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = c.bias ? bias[at(j)] : 0.0;
      for (int64_t l = 0; l < k; ++l) sum += x[at(i * k + l)] * w[at(j * k + l)];
      sums.linear[at(i * n + j)] = sum;
      sums.y[at(i * n + j)] = c.gelu ? gelu(sum) : sum;
    }
  }
  return sums;
}

TEST_F(EmulatedMatmul, ForwardAgreesWithDoublePrecision) {
  for (const Library& library : kLibraries) {
    for (const Case& c : cases_of(library)) {
      play(library);
      const std::string what = name_of(c) + ", the library " + library.name;
      const auto [m, n, k] = c.shape;
      const DeviceValues x = values(c, m * k, 1.0), weight = values(c, n * k, 1.0);
      // Uses values that survive the conversion of the bias unchanged.
      const DeviceValues rounded(stream_, c.dtype, random_doubles(n, 1.0, random_));
      const DeviceValues bias(stream_, c.bias_dtype, rounded.read());
      const DeviceValues y(stream_, c.dtype, std::vector<double>(at(m * n), NAN), c.offset);
      const DeviceValues pre(stream_, c.dtype, std::vector<double>(at(m * n), NAN), c.offset);
      const bool keeps = c.gelu && c.keep_pre;
      cuda::matmul_forward(stream_, {.x = x.view(),
                                     .weight = weight.view(),
                                     .bias = c.bias ? ConstView(bias.view()) : ConstView(),
                                     .y = y.view(),
                                     .pre_activation = keeps ? pre.view() : View(),
                                     .m = m,
                                     .n = n,
                                     .k = k,
                                     .activation = c.gelu ? Activation::kGelu : Activation::kNone,
                                     .workspace = workspace_.workspace()});
      expect_done(what);
      const Sums want = expected_forward(c, x.read(), weight.read(), bias.read());
      // If the bias is added separately, the product was rounded before that too.
      std::vector<double> before = want.linear, biases = bias.read();
      for (size_t i = 0; i < before.size() && library.refuse_epilogues && c.bias; ++i) {
        before[i] = 2.0 * std::abs(before[i]) + std::abs(biases[i % at(n)]);
      }
      expect_near(y.read(), want.y, before, bound_of(c.dtype), what);
      if (keeps) expect_near(pre.read(), want.linear, before, bound_of(c.dtype), what + ", pre");
      const bool odd = c.dtype == DType::kBf16 && (n % 8 != 0 || k % 8 != 0);
      const bool left_alone = library.refuse_all || (library.refuse_odd_bf16 && odd);
      EXPECT_EQ(fake_cublaslt().products, left_alone ? 0 : 1) << what;
    }
  }
}

struct Gradients {
  std::vector<double> linear, dx, dweight, dbias;
};
Gradients expected_backward(const Case& c, const std::vector<double>& dy,
                            const std::vector<double>& x, const std::vector<double>& w,
                            const std::vector<double>& pre) {
  const auto [m, n, k] = c.shape;
  Gradients g{std::vector<double>(at(m * k)), std::vector<double>(at(m * k)),
              std::vector<double>(at(n * k), 0.5), std::vector<double>(at(n), 0.5)};
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const double d = dy[at(i * n + j)];
      g.dbias[at(j)] += d;
      for (int64_t l = 0; l < k; ++l) {
        g.linear[at(i * k + l)] += d * w[at(j * k + l)];
        g.dweight[at(j * k + l)] += d * x[at(i * k + l)];
      }
    }
  }
  for (size_t i = 0; i < g.dx.size(); ++i) {
    g.dx[i] = g.linear[i] * (c.gelu ? gelu_slope(pre[i]) : 1.0);
  }
  return g;
}

TEST_F(EmulatedMatmul, BackwardAgreesWithDoublePrecision) {
  for (const Library& library : kLibraries) {
    for (const Case& c : cases_of(library)) {
      play(library);
      const std::string what = name_of(c) + ", the library " + library.name;
      const auto [m, n, k] = c.shape;
      const DeviceValues dy = values(c, m * n, 1.0), x = values(c, m * k, 1.0);
      const DeviceValues weight = values(c, n * k, 1.0), pre = values(c, m * k, 2.0);
      const DeviceValues dx(stream_, c.dtype, std::vector<double>(at(m * k), NAN), c.offset);
      const DeviceValues dweight(stream_, DType::kF32, std::vector<double>(at(n * k), 0.5));
      const DeviceValues dbias(stream_, DType::kF32, std::vector<double>(at(n), 0.5));
      cuda::matmul_backward(stream_,
                            {.dy = dy.view(),
                             .x = x.view(),
                             .weight = weight.view(),
                             .x_pre_activation = c.gelu ? ConstView(pre.view()) : ConstView(),
                             .dx = dx.view(),
                             .dweight = dweight.view(),
                             .dbias = c.bias ? dbias.view() : View(),
                             .m = m,
                             .n = n,
                             .k = k,
                             .workspace = workspace_.workspace()});
      expect_done(what);
      const Gradients want = expected_backward(c, dy.read(), x.read(), weight.read(), pre.read());
      expect_near(dx.read(), want.dx, want.linear, bound_of(c.dtype), what + ", dx");
      expect_near(dweight.read(), want.dweight, want.dweight, bound_of(DType::kF32),
                  what + ", dweight");
      if (c.bias) {
        expect_near(dbias.read(), want.dbias, want.dbias, bound_of(DType::kF32), what + ", dbias");
      }
    }
  }
}

TEST_F(EmulatedMatmul, ComputesOnlyTheGradientsThatAreWanted) {
  play(kLibraries[0]);
  const Case c{.shape = {4, 8, 16}};
  const DeviceValues dy = values(c, 32, 1.0), weight = values(c, 128, 1.0);
  const DeviceValues dx = DeviceValues::poisoned(stream_, DType::kF32, 64);
  cuda::matmul_backward(stream_, {.dy = dy.view(),
                                  .weight = weight.view(),
                                  .dx = dx.view(),
                                  .m = 4,
                                  .n = 8,
                                  .k = 16,
                                  .workspace = workspace_.workspace()});
  expect_done("dx alone");
  EXPECT_EQ(fake_cublaslt().products, 1);
}

// With sums of many parts, neither the load width nor the order of threads changes a bit.
TEST_F(EmulatedMatmul, SumsColumnsToTheSameBitsWhateverTheAlignmentAndTheOrderOfThreads) {
  play(kLibraries[3]);
  constexpr int64_t kRows = 1500, kColumns = 40;
  ASSERT_GT(column_sum_plan(kRows, kColumns, 1).parts, 2);
  const std::vector<double> given = random_doubles(kRows * kColumns, 1.0, random_);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    std::vector<std::vector<double>> sums;
    for (const size_t offset : {0u, 1u, 0u}) {
      emulated_cuda::set_seed(sums.size());
      const DeviceValues dy(stream_, dtype, given, offset);
      const DeviceValues dbias(stream_, DType::kF32, std::vector<double>(at(kColumns), 0.5));
      cuda::matmul_backward(stream_, {.dy = dy.view(),
                                      .dbias = dbias.view(),
                                      .m = kRows,
                                      .n = kColumns,
                                      .k = 8,
                                      .workspace = workspace_.workspace()});
      expect_done("dbias");
      sums.push_back(dbias.read());
    }
    EXPECT_EQ(sums[0], sums[1]);
    EXPECT_EQ(sums[0], sums[2]);
  }
}

TEST_F(EmulatedMatmul, TellsTheLibrarysFailureWhenTheStreamIsSynchronised) {
  play(kLibraries[0]);
  fake_cublaslt().next_failure = CUBLAS_STATUS_EXECUTION_FAILED;
  const Case c{.shape = {4, 8, 24}};
  const DeviceValues x = values(c, 96, 1.0), weight = values(c, 192, 1.0);
  const DeviceValues y = DeviceValues::poisoned(stream_, DType::kF32, 32);
  cuda::matmul_forward(stream_, {.x = x.view(),
                                 .weight = weight.view(),
                                 .y = y.view(),
                                 .m = 4,
                                 .n = 8,
                                 .k = 24,
                                 .workspace = workspace_.workspace()});
  const Status status = stream_.synchronize();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("cublasLtMatmul"), std::string::npos);
  EXPECT_TRUE(stream_.synchronize().ok());
}

TEST(MatmulGeometry, IsLaunchableForTheLargestSizes) {
  for (const auto& [rows, columns] : std::initializer_list<std::pair<int64_t, int64_t>>{
           {1, 1}, {50304, 65536}, {262144, 1 << 20}, {16, 17}}) {
    EXPECT_TRUE(is_launchable(plain_product_shape(rows, columns))) << rows << " x " << columns;
    for (const int values : {1, 4, 8}) {
      const ColumnSumPlan plan = column_sum_plan(columns, rows, values);
      EXPECT_TRUE(is_launchable(plan.partial_shape)) << columns << " x " << rows;
      EXPECT_GE(plan.parts * plan.rows_at_once, columns);
      EXPECT_LT((plan.parts - 1) * plan.rows_at_once, columns);
      EXPECT_LE(static_cast<size_t>(plan.parts * rows) * sizeof(float),
                matmul_backward_workspace({columns, rows, 8}, Precision::kBf16, DeviceType::kCuda));
    }
  }
}

TEST(MatmulGeometry, HasPartsThatDoNotDependOnTheLoads) {
  for (const int64_t rows : {1, 255, 257, 65536, 100000}) {
    EXPECT_EQ(column_sum_plan(rows, 768, 1).parts, column_sum_plan(rows, 768, 8).parts);
    EXPECT_EQ(column_sum_plan(rows, 768, 1).rows_at_once,
              column_sum_plan(rows, 768, 8).rows_at_once);
  }
}

}  // namespace

}  // namespace lockstep::kernels
