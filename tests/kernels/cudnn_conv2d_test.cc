// Checks which engines a convolution takes, with a fake cuDNN on the CPU. emulated_conv2d_test
// checks the values.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/dnn/cudnn.h"
#include "tests/support/emulated_cuda/fake_cudnn.h"

namespace lockstep::kernels::dnn {

namespace {

using test::fake_cudnn;
using test::fake_cudnn_library;

constexpr size_t kPlanBytes = 512;      // of the fake's plans
constexpr size_t kGradientBytes = 256;  // 3 * 2 * 2 * 2 values in bf16, padded
constexpr Conv2dShape kShape{.batch = 2,
                             .height = 3,
                             .width = 4,
                             .channels = 2,
                             .filters = 3,
                             .filter_height = 2,
                             .filter_width = 2};

class CudnnConv2dTest : public testing::Test {
 protected:
  void SetUp() override { fake_cudnn().reset(); }
  void TearDown() override {
    context_.reset();
    EXPECT_EQ(fake_cudnn().alive, 0) << "descriptors that nobody freed";
    fake_cudnn().reset();
  }

  static Conv2dUse use(DType dtype) { return {.shape = kShape, .dtype = dtype, .adds_dx = true}; }
  Result<PreparedConv2d> prepare(const Conv2dUse& use) {
    TRY_ASSIGN(context_, Cudnn::create(fake_cudnn_library(), 0));
    return context_->prepare(use);
  }
  Status forward(DType dtype) {
    const View values(memory_.get(), dtype);
    return context_->forward(nullptr, {.x = values,
                                       .weight = values,
                                       .y = View(memory_.get() + kBytes / 2, dtype),
                                       .shape = kShape,
                                       .workspace = workspace()});
  }
  // Returns the engine of a forward pass.
  int64_t engine(DType dtype) {
    const Result<PreparedConv2d> prepared = prepare(use(dtype));
    EXPECT_TRUE(prepared.ok() && prepared->forward.by == Conv2dBy::kCudnn);
    EXPECT_TRUE(forward(dtype).ok());
    return fake_cudnn().last_engine;
  }
  Workspace workspace() { return {workspace_.get(), kGradientBytes + kPlanBytes}; }

  static constexpr size_t kBytes = 4096;
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  static std::unique_ptr<std::byte, Free> aligned(size_t bytes) {
    auto* data = static_cast<std::byte*>(std::aligned_alloc(256, bytes));
    std::memset(data, 0, bytes);
    return std::unique_ptr<std::byte, Free>(data);
  }

  std::unique_ptr<Cudnn> context_;
  std::unique_ptr<std::byte, Free> memory_ = aligned(kBytes), workspace_ = aligned(1024);
};

TEST_F(CudnnConv2dTest, SaysTheWorkspaceOfThePlansAndOfAGradientThatIsNotAdded) {
  EXPECT_EQ(prepare(use(DType::kF32)).value().workspace_bytes(), kPlanBytes);
  EXPECT_EQ(prepare(use(DType::kBf16)).value().workspace_bytes(), kGradientBytes + kPlanBytes);
}

TEST_F(CudnnConv2dTest, PlansEachPassOnce) {
  Conv2dUse used = use(DType::kF32);
  ASSERT_TRUE(prepare(used).ok());
  EXPECT_EQ(fake_cudnn().heuristics, 3);
  ASSERT_TRUE(context_->prepare(used).ok());
  used.has_dx = false;
  ASSERT_TRUE(context_->prepare(used).ok());
  EXPECT_EQ(fake_cudnn().heuristics, 3);
  used = use(DType::kF32);
  used.adds_dx = false;
  ASSERT_TRUE(context_->prepare(used).ok());
  EXPECT_EQ(fake_cudnn().heuristics, 4) << "the gradient of the inputs that is not added";
}

TEST_F(CudnnConv2dTest, TakesTensorCoresForBf16Only) {
  fake_cudnn().engines = 3;
  fake_cudnn().on_tensor_cores = 2;
  EXPECT_EQ(engine(DType::kBf16), 0);
  EXPECT_EQ(engine(DType::kF32), 2);
}

TEST_F(CudnnConv2dTest, SkipsEnginesThatAreNondeterministicThatTransformAndThatAreRefused) {
  fake_cudnn().engines = 4;
  fake_cudnn().on_tensor_cores = 0;
  fake_cudnn().nondeterministic = 1;
  EXPECT_EQ(engine(DType::kBf16), 1);
  fake_cudnn().transforming = 2;
  EXPECT_EQ(engine(DType::kBf16), 2);
  EXPECT_EQ(engine(DType::kF32), 2);
  fake_cudnn().refused = 2;  // after the nondeterministic one
  EXPECT_EQ(engine(DType::kF32), 3);
}

TEST_F(CudnnConv2dTest, SaysOfEachPassWhyThereIsNoEngine) {
  fake_cudnn().on_tensor_cores = 2;
  const PreparedConv2d prepared = prepare(use(DType::kF32)).value();
  EXPECT_EQ(prepared.kernels(), Conv2dKernels());
  EXPECT_EQ(prepared.workspace_bytes(), 0u);
  EXPECT_EQ(prepared.refusals(),
            "[cudnn] convolution: no kernel that multiplies in fp32 for this shape; "
            "[cudnn] gradient of a convolution's inputs: no kernel that multiplies in fp32 for "
            "this shape; [cudnn] gradient of a convolution's filters: no kernel that multiplies in "
            "fp32 for this shape");
  fake_cudnn().reset();
  fake_cudnn().transforming = 2;
  const std::string refusals = prepare(use(DType::kBf16)).value().refusals();
  EXPECT_NE(refusals.find("no kernel without approximations"), std::string::npos) << refusals;
}

TEST_F(CudnnConv2dTest, SaysWhyTheEngineThatGotFurthestWasRefused) {
  const auto refusal = [&] { return prepare(use(DType::kF32)).value().forward.refusal; };
  fake_cudnn().engines = 3;
  fake_cudnn().on_tensor_cores = 0;
  fake_cudnn().refused = 2;
  fake_cudnn().transforming = 3;
  EXPECT_EQ(refusal(), "[cudnn] convolution: no kernel without approximations for this shape");
  fake_cudnn().nondeterministic = 1;  // the next two are refused
  fake_cudnn().transforming = 2;
  EXPECT_EQ(refusal(), "[cudnn] convolution: no kernel that the library supports for this shape");
  fake_cudnn().refused = 1;
  fake_cudnn().wide = 3;
  fake_cudnn().wide_bytes = kConv2dWorkspaceMax + 1;
  EXPECT_EQ(refusal(),
            "[cudnn] convolution: no kernel with a workspace of at most 1.00 GiB for this shape");
}

TEST_F(CudnnConv2dTest, SkipsEnginesThatNeedTooMuchWorkspace) {
  fake_cudnn().on_tensor_cores = 0;
  fake_cudnn().wide = 1;
  fake_cudnn().wide_bytes = kConv2dWorkspaceMax;
  EXPECT_EQ(prepare(use(DType::kF32)).value().workspace_bytes(), kConv2dWorkspaceMax);
  fake_cudnn().wide_bytes = kConv2dWorkspaceMax + 1;
  EXPECT_EQ(prepare(use(DType::kF32)).value().workspace_bytes(), kPlanBytes);
  EXPECT_EQ(engine(DType::kF32), 1);
}

TEST_F(CudnnConv2dTest, TakesAFallbackEngineWhereTheHeuristicHasNone) {
  fake_cudnn().fallback_engines = 2;
  EXPECT_EQ(engine(DType::kF32), 1);
  fake_cudnn().on_tensor_cores = 2;
  EXPECT_EQ(engine(DType::kF32), 2);
  fake_cudnn().engines = 0;
  EXPECT_EQ(engine(DType::kBf16), 0);
}

TEST_F(CudnnConv2dTest, TakesTheNextEngineWhereACallFailsForOne) {
  fake_cudnn().on_tensor_cores = 0;
  ASSERT_EQ(engine(DType::kF32), 0);
  const int64_t calls = fake_cudnn().calls;
  int64_t skipped = 0;
  for (int64_t i = 0; i < calls; ++i) {
    context_.reset();
    fake_cudnn().reset();
    fake_cudnn().on_tensor_cores = 0;
    fake_cudnn().fail_at = i;
    if (!prepare(use(DType::kF32)).ok() || !forward(DType::kF32).ok()) continue;
    skipped += fake_cudnn().last_engine == 1 ? 1 : 0;
  }
  EXPECT_GT(skipped, 5) << "calls for the notes and the plan of the first engine";
}

TEST_F(CudnnConv2dTest, TriesAgainAfterACallFailed) {
  fake_cudnn().on_tensor_cores = 0;
  fake_cudnn().engines = 1;
  ASSERT_TRUE(prepare(use(DType::kF32)).ok());
  fake_cudnn().fail_at = fake_cudnn().calls - 1;  // the last one of the filters' plan
  fake_cudnn().calls = 0;
  ASSERT_FALSE(prepare(use(DType::kF32)).ok());
  EXPECT_TRUE(context_->prepare(use(DType::kF32)).ok());
}

// Fails each call of the library in turn. There is only one engine, so none is left after a
// failure.
TEST_F(CudnnConv2dTest, SaysWhichCallFailedAndFreesAll) {
  const auto all = [&]() -> Status {
    fake_cudnn().engines = 1;
    fake_cudnn().on_tensor_cores = 0;
    TRY(prepare(use(DType::kF32)));
    return forward(DType::kF32);
  };
  ASSERT_TRUE(all().ok());
  const int64_t calls = fake_cudnn().calls;
  for (int64_t i = 0; i < calls; ++i) {
    context_.reset();
    fake_cudnn().reset();
    fake_cudnn().fail_at = i;
    const Status status = all();
    ASSERT_FALSE(status.ok()) << "call " << i;
    EXPECT_NE(status.error().message.find(fake_cudnn().failed + " at cudnn"), std::string::npos)
        << status.error().message;
  }
}

// Checks the fake itself.
TEST_F(CudnnConv2dTest, IsRefusedByTheFakeWhereDimsOrTypesDoNotFit) {
  const CudnnCalls calls(fake_cudnn_library(), 0);
  const auto described = [&](const Graph& graph) { return describe(calls, nullptr, graph).ok(); };
  for (const Conv2dPass pass : {Conv2dPass::kForward, Conv2dPass::kInputs, Conv2dPass::kFilters}) {
    const Graph graph = conv2d_graph(kShape, DType::kBf16, pass, true);
    EXPECT_TRUE(described(graph));
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      Graph other = graph;
      other.tensors[i].type = ValueType::kF32;
      EXPECT_FALSE(described(other)) << i;
      for (size_t dim = 0; dim < 4; ++dim) {
        other = graph;
        other.tensors[i].dims[dim] += 1;
        EXPECT_FALSE(described(other)) << i << ", " << dim;
      }
    }
    Graph other = graph;
    other.nodes[0].window.stride = 3;
    EXPECT_FALSE(described(other));
  }
}

TEST_F(CudnnConv2dTest, TripsOnAConvolutionThatWasNotPrepared) {
  ASSERT_TRUE(prepare(use(DType::kBf16)).ok());
  EXPECT_DEATH((void)forward(DType::kF32), "CHECK");
}

}  // namespace

}  // namespace lockstep::kernels::dnn
