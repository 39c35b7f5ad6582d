// Checks our calls of cuDNN and their effects with a fake library on the CPU.
// emulated_attention_test checks the values.
#include "kernels/ops/dnn/cudnn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/emulated_cuda/fake_cudnn.h"

namespace lockstep::kernels::dnn {

namespace {

using test::fake_cudnn;
using test::fake_cudnn_library;

constexpr AttentionShape kShape{
    .batch = 2, .sequence = 3, .heads = 4, .head_dim = 64, .kv_heads = 2};
constexpr size_t kPlanBytes = 512;  // of the fake's plans
constexpr size_t kRowBytes = 256;   // 2 * 4 * 3 floats, padded

// Memory aligned like a device's.
class Memory {
 public:
  explicit Memory(size_t bytes) {
    void* data = nullptr;
    CHECK(posix_memalign(&data, 256, bytes) == 0);
    std::memset(data, 0, bytes);
    data_.reset(data);
  }
  void* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::unique_ptr<void, Free> data_;
};

class CudnnTest : public testing::Test {
 protected:
  void SetUp() override { fake_cudnn().reset(); }
  void TearDown() override {
    context_.reset();
    EXPECT_EQ(fake_cudnn().alive, 0) << "descriptors that nobody freed";
    fake_cudnn().reset();
  }

  Status create() {
    TRY_ASSIGN(context_, Cudnn::create(fake_cudnn_library(), 0));
    return {};
  }
  Result<size_t> prepare(const AttentionShape& shape) {
    TRY(create());
    return context_->prepare(shape);
  }
  Status forward() {
    return context_->forward(stream_, {.qkv = View(qkv_.data(), DType::kBf16),
                                       .out = View(out_.data(), DType::kBf16),
                                       .lse = static_cast<float*>(lse_.data()),
                                       .shape = kShape,
                                       .workspace = workspace()});
  }
  Status backward() {
    return context_->backward(stream_, {.dout = View(out_.data(), DType::kBf16),
                                        .qkv = View(qkv_.data(), DType::kBf16),
                                        .out = View(out_.data(), DType::kBf16),
                                        .lse = static_cast<const float*>(lse_.data()),
                                        .dqkv = View(dqkv_.data(), DType::kBf16),
                                        .shape = kShape,
                                        .workspace = workspace()});
  }
  Workspace workspace() const { return {workspace_.data(), kRowBytes + kPlanBytes}; }

  std::unique_ptr<Cudnn> context_;
  void* stream_ = this;
  Memory qkv_{size_t{2} * 3 * 512 * 2}, dqkv_{size_t{2} * 3 * 512 * 2};
  Memory out_{size_t{2} * 3 * 256 * 2}, lse_{kRowBytes}, workspace_{kRowBytes + kPlanBytes};
};

std::string text_of(const Status& status) {
  return status.ok() ? "no error" : status.error().message;
}

TEST_F(CudnnTest, SaysTheWorkspaceOfThePlanAndOfTheRowsBeforeIt) {
  const Result<size_t> bytes = prepare(kShape);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_EQ(*bytes, kRowBytes + kPlanBytes);
}

TEST_F(CudnnTest, PlansAShapeOnceAndIssuesItOnTheCallersStream) {
  ASSERT_TRUE(prepare(kShape).ok());
  EXPECT_EQ(fake_cudnn().heuristics, 2);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(forward().ok());
    ASSERT_TRUE(backward().ok());
  }
  EXPECT_EQ(fake_cudnn().heuristics, 2);
  EXPECT_EQ(fake_cudnn().executions, 6);
  EXPECT_EQ(static_cast<void*>(fake_cudnn().last_stream), stream_);
  AttentionShape other = kShape;
  other.batch = 1;
  ASSERT_TRUE(context_->prepare(other).ok());
  EXPECT_EQ(fake_cudnn().heuristics, 4);
}

// Like ranks that run as threads of one process.
TEST_F(CudnnTest, ServesThreadsThatHaveAContextAndAStreamEach) {
  constexpr int kThreads = 4, kTimes = 100;
  std::latch all_there(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        all_there.arrive_and_wait();
        const auto own = Cudnn::create(fake_cudnn_library(), 0).value();
        ASSERT_TRUE(own->prepare(kShape).ok());
        Stream stream = Stream::create({DeviceType::kCuda, 0}).value();
        Memory out(size_t{2} * 3 * 256 * 2), lse(kRowBytes), scratch(kRowBytes + kPlanBytes);
        for (int time = 0; time < kTimes; ++time) {
          std::memset(lse.data(), 0, kRowBytes);
          ASSERT_TRUE(
              own->forward(stream.handle(), {.qkv = View(qkv_.data(), DType::kBf16),
                                             .out = View(out.data(), DType::kBf16),
                                             .lse = static_cast<float*>(lse.data()),
                                             .shape = kShape,
                                             .workspace = {scratch.data(), kRowBytes + kPlanBytes}})
                  .ok());
          ASSERT_TRUE(stream.synchronize().ok());
          ASSERT_FLOAT_EQ(static_cast<const float*>(lse.data())[1], std::log(2.0f));
        }
      });
    }
  }
  EXPECT_EQ(fake_cudnn().executions, kThreads * kTimes);
}

TEST_F(CudnnTest, LeavesWhatIsNotWantedOfForwardInTheWorkspace) {
  ASSERT_TRUE(prepare(kShape).ok());
  const Status status = context_->forward(stream_, {.qkv = View(qkv_.data(), DType::kBf16),
                                                    .out = View(out_.data(), DType::kBf16),
                                                    .shape = kShape,
                                                    .workspace = workspace()});
  ASSERT_TRUE(status.ok()) << text_of(status);
  // All scores are zero: the first query sees one key, the second sees two.
  const auto* lse = static_cast<const float*>(workspace_.data());
  EXPECT_FLOAT_EQ(lse[0], 0.0f);
  EXPECT_FLOAT_EQ(lse[1], std::log(2.0f));
}

TEST_F(CudnnTest, TakesTheFirstEngineThatIsDeterministicAndSupported) {
  fake_cudnn().engines = 3;
  fake_cudnn().nondeterministic = 1;
  fake_cudnn().refused = 1;
  ASSERT_TRUE(prepare(kShape).ok());
  EXPECT_TRUE(forward().ok());
}

TEST_F(CudnnTest, SaysThatEveryEngineIsNondeterministic) {
  fake_cudnn().nondeterministic = 2;
  const Result<size_t> bytes = prepare(kShape);
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.error().code, Code::kUnavailable);
  EXPECT_NE(bytes.error().message.find("no deterministic kernel"), std::string::npos)
      << bytes.error().message;
}

TEST_F(CudnnTest, SaysThatThereIsNoEngine) {
  for (const bool offered : {false, true}) {
    fake_cudnn().engines = offered ? 2 : 0;
    fake_cudnn().refused = 2;
    const Result<size_t> bytes = prepare(kShape);
    ASSERT_FALSE(bytes.ok());
    EXPECT_EQ(bytes.error().code, Code::kUnavailable);
    EXPECT_EQ(bytes.error().message, std::string("[cudnn] attention: no kernel ") +
                                         (offered ? "that the library supports " : "") +
                                         "for this shape");
  }
}

TEST_F(CudnnTest, DoesNotAskForShapesThatTheGraphsAreNotFor) {
  for (const auto& [head_dim, sequence] :
       {std::pair{64, 1}, std::pair{32, 8}, std::pair{96, 8}, std::pair{256, 8}}) {
    AttentionShape shape = kShape;
    shape.head_dim = head_dim;
    shape.sequence = sequence;
    const Result<size_t> bytes = prepare(shape);
    ASSERT_FALSE(bytes.ok()) << head_dim << ", " << sequence;
    EXPECT_EQ(bytes.error().code, Code::kUnavailable);
  }
  EXPECT_EQ(fake_cudnn().heuristics, 0);
}

TEST_F(CudnnTest, IsNotForVersionsWithKnownFaultsAndNotForBlackwell) {
  fake_cudnn().version = 91501;
  Status status = create();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(text_of(status).find("91501"), std::string::npos) << text_of(status);
  fake_cudnn().version = 91600;
  EXPECT_TRUE(create().ok());
  fake_cudnn().capability = 100;
  status = create();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(text_of(status).find("10.0"), std::string::npos) << text_of(status);
}

TEST_F(CudnnTest, TakesNoFallbackEngine) {
  fake_cudnn().engines = 0;
  fake_cudnn().fallback_engines = 1;
  EXPECT_FALSE(prepare(kShape).ok());
}

// Fails each call of the library in turn, from creating the handle to launching backward. There is
// only one engine, so none is left after a failure.
TEST_F(CudnnTest, NamesEachCallThatFailsWithTheLibrarysWordsAndFreesAll) {
  const auto all = [&]() -> Status {
    TRY(create());
    TRY(context_->prepare(kShape));
    TRY(forward());
    return backward();
  };
  fake_cudnn().engines = 1;
  ASSERT_TRUE(all().ok());
  const int64_t calls = fake_cudnn().calls;
  std::set<std::string> names;
  for (int64_t i = 0; i < calls; ++i) {
    context_.reset();
    fake_cudnn().reset();
    fake_cudnn().engines = 1;
    fake_cudnn().fail_at = i;
    const Status status = all();
    ASSERT_FALSE(status.ok()) << "call " << i;
    const std::string& words = status.error().message;
    EXPECT_NE(words.find(fake_cudnn().failed + " at cudnn"), std::string::npos) << words;
    EXPECT_NE(words.find("CUDA device 0"), std::string::npos) << words;
    EXPECT_NE(words.find("the fake library's last error"), std::string::npos) << words;
    names.insert(fake_cudnn().failed);
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"cudnnCreate", "cudnnSetStream", "cudnnBackendCreateDescriptor",
                                   "cudnnBackendSetAttribute", "cudnnBackendGetAttribute",
                                   "cudnnBackendFinalize", "cudnnBackendExecute"}));
}

// Checks the fake itself: it must refuse what the documentation forbids.
class FakeCudnnTest : public testing::Test {
 protected:
  void SetUp() override { fake_cudnn().reset(); }
  void TearDown() override {
    parts_.clear();
    EXPECT_EQ(fake_cudnn().alive, 0);
  }

  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
    Result<Descriptor> made = calls_.make(type);
    CHECK(made.ok());
    parts_.push_back(std::move(made).value());
    return parts_.back().get();
  }
  template <class T>
  cudnnStatus_t set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attribute,
                    cudnnBackendAttributeType_t type, const std::vector<T>& values) {
    return library_.set_attribute(descriptor, attribute, type, std::ssize(values), values.data());
  }
  cudnnBackendDescriptor_t tensor(int64_t id, const std::vector<int64_t>& dims,
                                  bool is_virtual = false) {
    const auto made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims);
    set(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
        std::vector{dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], int64_t{1}});
    set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector{id});
    set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::vector{int64_t{16}});
    if (is_virtual) {
      const bool yes = true;
      library_.set_attribute(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    }
    EXPECT_EQ(library_.finalize(made), CUDNN_STATUS_SUCCESS);
    return made;
  }
  // Describes a b; not finalized.
  cudnnBackendDescriptor_t matmul(cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                                  cudnnBackendDescriptor_t c) {
    const auto settings = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(settings, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    EXPECT_EQ(library_.finalize(settings), CUDNN_STATUS_SUCCESS);
    const auto made = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    refer(made, CUDNN_ATTR_OPERATION_MATMUL_DESC, settings);
    refer(made, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    refer(made, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    refer(made, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    return made;
  }
  cudnnStatus_t refer(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t attribute,
                      cudnnBackendDescriptor_t to) {
    return set(from, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{to});
  }
  cudnnStatus_t finalize_graph(const std::vector<cudnnBackendDescriptor_t>& operations) {
    const auto made = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
        std::vector<cudnnHandle_t>{nullptr});
    set(made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations);
    return library_.finalize(made);
  }

  const CudnnLibrary& library_ = fake_cudnn_library();
  const CudnnCalls calls_{fake_cudnn_library(), 0};
  std::vector<Descriptor> parts_;
};

TEST_F(FakeCudnnTest, RefusesAttributesOfAnotherTypeCountOrDescriptor) {
  const auto made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const std::vector<int64_t> four(4, 1), five(5, 1);
  EXPECT_EQ(set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, four), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_DATA_TYPE, four),
            CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  EXPECT_EQ(set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, five),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(made, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, std::vector<int64_t>{1}),
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(library_.finalize(made), CUDNN_STATUS_BAD_PARAM) << "most of it is missing";
}

TEST_F(FakeCudnnTest, RefusesReferencesToWhatIsNotFinalized) {
  const auto operation = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  EXPECT_EQ(
      refer(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, make(CUDNN_BACKEND_TENSOR_DESCRIPTOR)),
      CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
}

TEST_F(FakeCudnnTest, RefusesProductsWhoseDimsDoNotFit) {
  const auto a = tensor(1, {1, 4, 3, 8}), c = tensor(3, {1, 4, 3, 5});
  EXPECT_EQ(library_.finalize(matmul(a, tensor(2, {1, 2, 8, 5}), c)), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(library_.finalize(matmul(a, tensor(2, {1, 3, 8, 5}), c)),
            CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  EXPECT_EQ(library_.finalize(matmul(a, tensor(2, {1, 4, 5, 8}), c)),
            CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
}

TEST_F(FakeCudnnTest, RefusesGraphsThatReadWhatNothingWroteOrWriteTwiceOrShareAnId) {
  const auto a = tensor(1, {1, 1, 4, 4}), b = tensor(2, {1, 1, 4, 4}), c = tensor(3, {1, 1, 4, 4});
  const auto inner = tensor(4, {1, 1, 4, 4}, true), same_id = tensor(2, {1, 1, 4, 4});
  const auto finalized = [&](cudnnBackendDescriptor_t operation) {
    EXPECT_EQ(library_.finalize(operation), CUDNN_STATUS_SUCCESS);
    return operation;
  };
  const auto write = finalized(matmul(a, b, inner)), read = finalized(matmul(inner, b, c));
  EXPECT_EQ(finalize_graph({write, read}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(finalize_graph({read, write}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(finalize_graph({write, read, finalized(matmul(a, b, c))}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(finalize_graph({finalized(matmul(a, b, same_id))}),
            CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
}

TEST_F(CudnnTest, TripsOnMemoryThatIsNotAligned) {
  ASSERT_TRUE(prepare(kShape).ok());
  const AttentionForward op{.qkv = View(static_cast<char*>(qkv_.data()) + 8, DType::kBf16),
                            .out = View(out_.data(), DType::kBf16),
                            .shape = kShape,
                            .workspace = workspace()};
  EXPECT_DEATH((void)context_->forward(stream_, op), "CHECK");
}

}  // namespace

}  // namespace lockstep::kernels::dnn
