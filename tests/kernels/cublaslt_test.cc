// Products through cuBLASLt's API with a fake library on the CPU: checks the descriptors'
// attributes, the cache of algorithms, and that the fake refuses what the documentation forbids.
#include "kernels/ops/blas/cublaslt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <latch>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "tests/support/emulated_cuda/fake_cublaslt.h"

namespace lockstep::kernels::blas {

namespace {

using test::fake_cublaslt;
using test::fake_cublaslt_library;

constexpr size_t kWorkspace = size_t{1} << 17;

class CublasLtTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_cublaslt().reset();
    auto made = CublasLt::create(fake_cublaslt_library(), 0);
    ASSERT_TRUE(made.ok());
    context_ = std::move(made).value();
    // Aligned to 256 bytes, like all device memory.
    void* data = nullptr;
    ASSERT_EQ(posix_memalign(&data, 256, kWorkspace), 0);
    workspace_ = {data, kWorkspace};
  }
  void TearDown() override {
    context_.reset();
    std::free(workspace_.data);
    EXPECT_EQ(fake_cublaslt().alive, 0) << "descriptors that nobody freed";
    fake_cublaslt().reset();
  }

  Result<bool> multiply(const Call& call) { return context_->multiply(nullptr, call, workspace_); }
  bool multiplied(const Call& call) {
    const Result<bool> done = multiply(call);
    EXPECT_TRUE(done.ok()) << done.error().message;
    return done.ok() && *done;
  }

  std::unique_ptr<CublasLt> context_;
  Workspace workspace_;
};

// y[2,8] = x[2,3] weight[8,3]^T, with small integers.
struct Forward {
  alignas(256) float x[6] = {1, 2, 3, 4, 5, 6};
  alignas(256) float weight[24] = {};
  alignas(256) float bias[8] = {10, 20, 30, 40, 50, 60, 70, 80};
  alignas(256) float y[16] = {};
  alignas(256) float pre[17] = {};

  Forward() {
    for (int i = 0; i < 24; ++i) weight[i] = static_cast<float>(i % 5 - 2);
  }
  MatmulForward args() {
    return {.x = x, .weight = weight, .bias = bias, .y = y, .m = 2, .n = 8, .k = 3};
  }
  float expected(int row, int column) const {
    float sum = bias[column];
    for (int l = 0; l < 3; ++l) sum += x[row * 3 + l] * weight[column * 3 + l];
    return sum;
  }
};

TEST_F(CublasLtTest, ComputesYByRowsFromColumnMajorDescriptors) {
  Forward f;
  ASSERT_TRUE(multiplied(forward_call(f.args())));
  for (int row = 0; row < 2; ++row) {
    for (int column = 0; column < 8; ++column) {
      EXPECT_EQ(f.y[row * 8 + column], f.expected(row, column)) << row << ", " << column;
    }
  }
  EXPECT_EQ(fake_cublaslt().last_epilogue, uint32_t{CUBLASLT_EPILOGUE_BIAS});
}

TEST_F(CublasLtTest, AsksForAnAlgorithmOnceAProductAndDevice) {
  Forward f;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(multiplied(forward_call(f.args())));
  EXPECT_EQ(fake_cublaslt().heuristics, 1);
  EXPECT_EQ(fake_cublaslt().products, 3);
}

// Like ranks that run as threads of one process.
TEST_F(CublasLtTest, ServesThreadsThatHaveAContextEach) {
  constexpr int kThreads = 4, kTimes = 5000;
  std::latch all_there(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        all_there.arrive_and_wait();
        const auto own = CublasLt::create(fake_cublaslt_library(), 0).value();
        Forward f;
        for (int time = 0; time < kTimes; ++time) {
          const Result<bool> done = own->multiply(nullptr, forward_call(f.args()), workspace_);
          ASSERT_TRUE(done.ok() && *done);
        }
        EXPECT_EQ(f.y[15], f.expected(1, 7));
      });
    }
  }
  EXPECT_EQ(fake_cublaslt().heuristics, kThreads);
  EXPECT_EQ(fake_cublaslt().products, kThreads * kTimes);
}

TEST_F(CublasLtTest, AsksAnewForAnotherShapeEpilogueDtypeOrAlignment) {
  Forward f;
  MatmulForward args = f.args();
  ASSERT_TRUE(multiplied(forward_call(args)));
  args.m = 1;
  ASSERT_TRUE(multiplied(forward_call(args)));
  EXPECT_EQ(fake_cublaslt().heuristics, 2);
  args.bias = {};
  ASSERT_TRUE(multiplied(forward_call(args)));
  EXPECT_EQ(fake_cublaslt().heuristics, 3);
  args.x = f.x + 1;
  ASSERT_TRUE(multiplied(forward_call(args)));
  EXPECT_EQ(fake_cublaslt().heuristics, 4);
  ASSERT_TRUE(multiplied(forward_call(args)));
  EXPECT_EQ(fake_cublaslt().heuristics, 4);
}

// Layers' weights are at multiples of 16 bytes, activations at multiples of 256.
TEST_F(CublasLtTest, TakesOneAlgorithmForAllLinesOfTheCache) {
  Forward f;
  alignas(256) float inputs[256] = {};
  MatmulForward args = f.args();
  for (const int floats : {32, 64, 128}) {
    args.x = inputs + floats;
    ASSERT_TRUE(multiplied(forward_call(args)));
  }
  EXPECT_EQ(fake_cublaslt().heuristics, 1) << "128 bytes and more";
  for (const int floats : {4, 8, 16, 12}) {
    args.x = inputs + floats;
    ASSERT_TRUE(multiplied(forward_call(args)));
  }
  EXPECT_EQ(fake_cublaslt().heuristics, 2) << "16 bytes and more";
}

// The heuristic sees the alignment of the first call's bias and aux; later calls have less.
TEST_F(CublasLtTest, TakesOneAlgorithmForAllLinesOfBiasAndAux) {
  Forward f;
  alignas(256) float biases[256] = {}, kept[256] = {};
  MatmulForward args = f.args();
  args.activation = Activation::kGelu;
  for (const int floats : {64, 32, 128}) {
    args.bias = biases + floats;
    args.pre_activation = kept + floats;
    ASSERT_TRUE(multiplied(forward_call(args)));
  }
  EXPECT_EQ(fake_cublaslt().heuristics, 1);
}

TEST_F(CublasLtTest, TakesTheHeuristicsBestUnmeasured) {
  fake_cublaslt().seconds_of = {5.0, 1.0};
  Forward f;
  ASSERT_TRUE(multiplied(forward_call(f.args())));
  EXPECT_EQ(fake_cublaslt().seconds, 5.0);
  EXPECT_EQ(fake_cublaslt().products, 1);
}

TEST_F(CublasLtTest, PassesOverAnAlgorithmWhoseStateIsNoSuccess) {
  fake_cublaslt().seconds_of = {5.0, 1.0};
  fake_cublaslt().unusable = 1;
  Forward f;
  ASSERT_TRUE(multiplied(forward_call(f.args())));
  EXPECT_EQ(fake_cublaslt().seconds, 1.0);
}

TEST_F(CublasLtTest, TakesAnEpilogueThatIsAnInvalidValueForOneThatIsNotThere) {
  fake_cublaslt().refuse_epilogues = true;
  fake_cublaslt().refusal = CUBLAS_STATUS_INVALID_VALUE;
  Forward f;
  EXPECT_FALSE(multiplied(forward_call(f.args())));
  EXPECT_TRUE(multiplied(without_epilogue(forward_call(f.args()))));
}

TEST_F(CublasLtTest, TellsAnInvalidProductWithoutEpilogue) {
  fake_cublaslt().refuse_all = true;
  fake_cublaslt().refusal = CUBLAS_STATUS_INVALID_VALUE;
  Forward f;
  EXPECT_FALSE(multiply(without_epilogue(forward_call(f.args()))).ok());
}

// Measures with a clock that only the fake's algorithms advance, by their seconds_of.
class MeasuredCublasLtTest : public CublasLtTest {
 protected:
  void SetUp() override {
    CublasLtTest::SetUp();
    auto made =
        CublasLt::create(fake_cublaslt_library(), 0,
                         {.choice = AlgorithmChoice::kMeasured,
                          .stopwatch = [](Device device, void* stream,
                                          const std::function<Status()>& issue) -> Result<double> {
                            const double before = fake_cublaslt().seconds;
                            TRY_ASSIGN(Event after, Event::create(device));
                            TRY(issue());
                            TRY(after.record(stream));
                            TRY(after.synchronize());
                            return fake_cublaslt().seconds - before;
                          }});
    ASSERT_TRUE(made.ok());
    context_ = std::move(made).value();
    Result<Stream> stream = Stream::create({DeviceType::kCuda, 0});
    ASSERT_TRUE(stream.ok());
    stream_ = std::move(stream).value();
  }
  // Runs on a stream, because measuring writes to device memory.
  bool multiplied(const Call& call) {
    const Result<bool> done = context_->multiply(stream_.handle(), call, workspace_);
    EXPECT_TRUE(done.ok()) << done.error().message;
    EXPECT_TRUE(stream_.synchronize().ok());
    return done.ok() && *done;
  }
  // Returns the seconds of the second call of that product.
  double seconds_of(const Call& call) {
    EXPECT_TRUE(multiplied(call));
    const double before = fake_cublaslt().seconds;
    EXPECT_TRUE(multiplied(call));
    return fake_cublaslt().seconds - before;
  }

  Stream stream_;
};

TEST_F(MeasuredCublasLtTest, TakesTheFastest) {
  fake_cublaslt().seconds_of = {5.0, 3.0, 2.0, 4.0};
  Forward f;
  EXPECT_EQ(seconds_of(forward_call(f.args())), 2.0);
}

TEST_F(MeasuredCublasLtTest, MeasuresAProductOnce) {
  fake_cublaslt().seconds_of = {5.0, 3.0};
  Forward f;
  ASSERT_TRUE(multiplied(forward_call(f.args())));
  const int64_t products = fake_cublaslt().products;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(multiplied(forward_call(f.args())));
  EXPECT_EQ(fake_cublaslt().products, products + 3);
}

TEST_F(MeasuredCublasLtTest, KeepsTheFirstUnlessAnotherIsClearlyFaster) {
  fake_cublaslt().seconds_of = {1.0, 0.99};
  Forward f;
  EXPECT_EQ(seconds_of(forward_call(f.args())), 1.0);
}

TEST_F(MeasuredCublasLtTest, PassesOverWhatCanNotBeRun) {
  fake_cublaslt().seconds_of = {-1.0, 3.0, -1.0, 2.0};
  Forward f;
  EXPECT_EQ(seconds_of(forward_call(f.args())), 2.0);
}

// Measuring uses separate outputs: a gradient is added to only once, and the stored pre-activation
// is unchanged.
TEST_F(MeasuredCublasLtTest, LeavesTheCallersMemoryAlone) {
  fake_cublaslt().seconds_of = {3.0, 2.0, 1.0};
  alignas(256) Bf16 dy[4], x[6];  // dy[2,2], x[2,3] of ones
  std::fill_n(dy, 4, Bf16{0x3F80});
  std::fill_n(x, 6, Bf16{0x3F80});
  alignas(256) float dweight[6] = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f};
  ASSERT_TRUE(
      multiplied(dweight_call({.dy = dy, .x = x, .dweight = dweight, .m = 2, .n = 2, .k = 3})));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(dweight[i], static_cast<float>(i) + 2.5f) << i;
  Forward f;
  MatmulForward args = f.args();
  args.activation = Activation::kGelu;
  args.pre_activation = f.pre;
  ASSERT_TRUE(multiplied(forward_call(args)));
  for (int row = 0; row < 2; ++row) {
    for (int column = 0; column < 8; ++column) {
      EXPECT_EQ(f.pre[row * 8 + column], f.expected(row, column));
    }
  }
}

TEST_F(CublasLtTest, RemembersThatThereIsNoAlgorithm) {
  fake_cublaslt().refuse_all = true;
  Forward f;
  EXPECT_FALSE(multiplied(forward_call(f.args())));
  EXPECT_FALSE(multiplied(forward_call(f.args())));
  EXPECT_EQ(fake_cublaslt().heuristics, 1);
  EXPECT_EQ(fake_cublaslt().products, 0);
}

TEST_F(CublasLtTest, DoesNotAskForWhatIsDocumentedAsRefused) {
  Forward f;
  MatmulForward args = f.args();
  args.n = 7;
  args.activation = Activation::kGelu;
  args.pre_activation = f.pre;
  EXPECT_FALSE(multiplied(forward_call(args))) << "aux's leading dimension is 7";
  args.n = 8;
  args.pre_activation = f.pre + 1;
  EXPECT_FALSE(multiplied(forward_call(args))) << "aux is aligned to 4 bytes";
  EXPECT_EQ(fake_cublaslt().heuristics, 0);
  args.pre_activation = f.pre;
  EXPECT_TRUE(multiplied(forward_call(args)));
}

TEST_F(CublasLtTest, ExcludesReductionsIntoTheOutputAndGivesTheWholeWorkspace) {
  Forward f;
  ASSERT_TRUE(multiplied(forward_call(f.args())));
  EXPECT_EQ(fake_cublaslt().last_reduction_schemes,
            uint64_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  EXPECT_EQ(fake_cublaslt().last_workspace_bytes, kWorkspace);
}

TEST_F(CublasLtTest, NamesTheCallThatFailedAndTheDevice) {
  Forward f;
  fake_cublaslt().next_failure = CUBLAS_STATUS_EXECUTION_FAILED;
  const Result<bool> done = multiply(forward_call(f.args()));
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, Code::kUnavailable);
  const std::string& words = done.error().message;
  EXPECT_NE(words.find("cublasLtMatmul at cublaslt.cc:"), std::string::npos) << words;
  EXPECT_NE(words.find("CUDA device 0"), std::string::npos) << words;
}

TEST_F(CublasLtTest, AddsToTheGradientOfAWeightInFp32) {
  alignas(256) Bf16 dy[4], x[6];  // dy[2,2], x[2,3] of ones
  std::fill_n(dy, 4, Bf16{0x3F80});
  std::fill_n(x, 6, Bf16{0x3F80});
  alignas(256) float dweight[6] = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f};
  const MatmulBackward args{.dy = dy, .x = x, .dweight = dweight, .m = 2, .n = 2, .k = 3};
  ASSERT_TRUE(multiplied(dweight_call(args)));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(dweight[i], static_cast<float>(i) + 2.5f) << i;
}

// Checks the fake itself: it must refuse what the documentation forbids.
class FakeCublasLtTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_cublaslt().reset();
    library_.create(&handle_);
    library_.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    library_.layout_create(&a_, CUDA_R_32F, 8, 4, 8);
    library_.layout_create(&b_, CUDA_R_32F, 4, 3, 4);
    library_.layout_create(&d_, CUDA_R_32F, 8, 3, 8);
    library_.preference_create(&preference_);
  }
  void TearDown() override {
    library_.desc_destroy(desc_);
    for (const cublasLtMatrixLayout_t layout : {a_, b_, d_}) library_.layout_destroy(layout);
    library_.preference_destroy(preference_);
    EXPECT_EQ(fake_cublaslt().alive, 0);
  }

  template <class T>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t what, const T& value) {
    return library_.desc_set(desc_, what, &value, sizeof value);
  }
  cublasStatus_t ask() {
    int count = 0;
    return library_.heuristic(handle_, desc_, a_, b_, d_, d_, preference_, 1, &found_, &count);
  }
  cublasStatus_t run(void* workspace, size_t bytes, float* a) {
    const float one = 1.0f, zero = 0.0f;
    alignas(256) static float b[12], d[24];
    return library_.matmul(handle_, desc_, &one, a, a_, b, b_, &zero, d, d_, d, d_, &found_.algo,
                           workspace, bytes, nullptr);
  }

  const CublasLtLibrary& library_ = fake_cublaslt_library();
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulHeuristicResult_t found_{};
};

TEST_F(FakeCublasLtTest, TakesTheProductOfTheseLayouts) {
  alignas(256) float a[32] = {};
  EXPECT_EQ(ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run(nullptr, 0, a), CUBLAS_STATUS_SUCCESS);
}

TEST_F(FakeCublasLtTest, RefusesShapesThatDoNotFit) {
  EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{CUBLAS_OP_T}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(ask(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCublasLtTest, RefusesAttributesOfAnotherSize) {
  EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_TRANSA, int64_t{0}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int32_t{8}), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCublasLtTest, RefusesABiasThatIsNotThereAndAnAuxOfAnOddLeadingDimension) {
  alignas(256) float aux[32] = {};
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(ask(), CUBLAS_STATUS_INVALID_VALUE);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_GELU_AUX});
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(aux));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{9});
  EXPECT_EQ(ask(), CUBLAS_STATUS_INVALID_VALUE);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{8});
  EXPECT_EQ(ask(), CUBLAS_STATUS_SUCCESS);
}

TEST_F(FakeCublasLtTest, RefusesLessAlignmentThanTheAlgorithmWasAskedFor) {
  alignas(256) float a[33] = {};
  ASSERT_EQ(ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run(nullptr, 0, a + 1), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCublasLtTest, RefusesAnAlgorithmOfAnotherProduct) {
  alignas(256) float a[32] = {};
  ASSERT_EQ(ask(), CUBLAS_STATUS_SUCCESS);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_GELU});
  EXPECT_EQ(run(nullptr, 0, a), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(FakeCublasLtTest, RefusesFactorsOfTwoTypes) {
  library_.layout_destroy(b_);
  library_.layout_create(&b_, CUDA_R_16BF, 4, 3, 4);
  EXPECT_EQ(ask(), CUBLAS_STATUS_NOT_SUPPORTED);
}

}  // namespace

}  // namespace lockstep::kernels::blas
