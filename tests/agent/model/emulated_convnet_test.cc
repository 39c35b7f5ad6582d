// Convolutional networks by cuDNN, on a CUDA device with cuDNN emulated on the CPU: the losses and
// gradients of our own kernels, for the passes that were prepared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "agent/model/make_model.h"
#include "agent/model/passes.h"
#include "common/base/random.h"
#include "kernels/ops/dnn/dnn.h"
#include "tests/agent/model/tiny_gpt.h"
#include "tests/support/emulated_cuda/fake_cudnn.h"

namespace lockstep::model {
namespace {

using lockstep::test::ArenaSink;
using lockstep::test::ArenaStore;
using test::fake_cudnn;

constexpr kernels::Device kCuda{kernels::DeviceType::kCuda, 0}, kCpu{};
constexpr int64_t kBatch = 4;

// Small images, of which the last normalised ones still have several pixels.
ConvnetConfig small(std::string_view preset) {
  ConvnetConfig config = convnet_preset(preset)->config;
  config.height = config.width = std::max<int64_t>(convnet_preset(preset)->edge_min, 8);
  config.classes = 7;
  return config;
}

struct Answer {
  double loss = 0;
  std::vector<float> gradients;
};

// One micro-batch of random images. The emulated device's memory is host memory, so all may be
// allocated on the host.
class OneStep {
 public:
  OneStep(const ConvnetConfig& config, kernels::Device device, kernels::Conv2dBy by,
          kernels::Precision precision = kernels::Precision::kF32)
      : options_{.design = config, .stage = whole_model(config), .precision = precision},
        stream_(kernels::Stream::create(device).value()),
        store_(config, options_.stage),
        sink_(store_.arena()) {
    ConvolutionChoice& choice = options_.kernels.convolutions;
    if (by == kernels::Conv2dBy::kCudnn) {
      const Status added = add_convolutions(options_, kBatch, device, choice);
      EXPECT_TRUE(added.ok()) << added.error().message;
      EXPECT_EQ(choice.own_passes, 0) << choice.reason;
    }
    const kernels::OpTable& ops = *kernels::device_ops(device.type).value();
    model_ = make_model(options_, ops, stream_, whole_).value();
    const ActivationShape shape{kBatch, 1, PassMode::kTrain};
    const ModelMemory bytes = model_memory(options_, {}, shape, device.type);
    EXPECT_GE(bytes.workspace, choice.workspace_bytes);
    model_->use_memory({.scratch = memory(bytes.scratch), .workspace = memory(bytes.workspace)});
    micro_batch_ = model_->new_micro_batch(shape, memory(bytes.activations)).value();
    store_.initialise({}, 1);
    if (precision == kernels::Precision::kF32) return;
    std::vector<kernels::Bf16> copies(store_.values().size());
    ops.cast(stream_, {.x = kernels::ConstView(store_.values().data()),
                       .out = kernels::View(copies.data()),
                       .count = std::ssize(copies)});
    EXPECT_TRUE(stream_.synchronize().ok());
    store_.use_copies(std::move(copies));
  }

  Answer run(int64_t rows = kBatch) {
    const auto& config = std::get<ConvnetConfig>(options_.design);
    Random random(3);
    std::vector<float> pixels(
        static_cast<size_t>(rows * config.height * config.width * config.channels));
    for (float& pixel : pixels) pixel = 2 * random.uniform() - 1;
    const std::vector<int32_t> labels{1, 4, 0, 6};
    sink_.begin_step();
    const DeviceBatch batch{
        .rows = rows, .counted = rows, .tensors = {pixels.data(), labels.data()}};
    EXPECT_TRUE(micro_batch_->begin({.batch = batch, .gradient_scale = 0.25f}).ok());
    EXPECT_TRUE(forward_pass(*model_, store_, *micro_batch_).ok());
    EXPECT_TRUE(backward_pass(*model_, store_, *micro_batch_, sink_).ok());
    const Status status = stream_.synchronize();
    EXPECT_TRUE(status.ok()) << status.error().message;
    const MicroBatch::Terms losses = micro_batch_->losses();
    double loss = 0;
    for (int64_t i = 0; i < losses.count; ++i) loss += static_cast<double>(losses.values[i]);
    return {loss, sink_.gradients()};
  }

 private:
  // Aligned as on a device.
  kernels::Workspace memory(size_t bytes) {
    constexpr size_t kAlignment = 256;
    buffers_.push_back(kernels::Buffer::allocate(kCpu, bytes + kAlignment).value());
    void* data = buffers_.back().data();
    size_t rest = buffers_.back().bytes();
    return {std::align(kAlignment, bytes, data, rest), bytes};
  }

  ModelOptions options_;
  kernels::Stream stream_;
  WholeTensor whole_;
  ArenaStore store_;
  ArenaSink sink_;
  std::vector<kernels::Buffer> buffers_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<MicroBatch> micro_batch_;
};

double distance(const std::vector<float>& one, const std::vector<float>& two) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    const double by = static_cast<double>(one[i]) - static_cast<double>(two[i]);
    difference += by * by;
    size += static_cast<double>(one[i]) * static_cast<double>(one[i]);
  }
  return std::sqrt(difference / size);
}

int64_t passes_of(const ConvnetConfig& config) {
  return 3 * std::ssize(convnet_units(config)) - 1;  // the images have no gradient
}

class ConvnetByCudnn : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const Status status = kernels::dnn::available(); !status.ok()) {
      GTEST_SKIP() << status.error().message;
    }
    fake_cudnn().reset();
  }
};

TEST_P(ConvnetByCudnn, HasTheLossAndTheGradientsOfTheCpu) {
  const ConvnetConfig config = small(GetParam());
  const Answer expected = OneStep(config, kCpu, kernels::Conv2dBy::kOwn).run();
  const Answer got = OneStep(config, kCuda, kernels::Conv2dBy::kCudnn).run();
  EXPECT_EQ(fake_cudnn().executions, passes_of(config));
  EXPECT_NEAR(got.loss, expected.loss, 1e-4 * expected.loss);
  EXPECT_LT(distance(expected.gradients, got.gradients), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Presets, ConvnetByCudnn, ::testing::Values("lenet5", "vgg11", "resnet20"));

TEST(ConvnetsConvolutions, ByCudnnGiveTheSameBitsTwice) {
  for (const char* preset : {"lenet5", "resnet20"}) {
    for (const kernels::Precision precision :
         {kernels::Precision::kF32, kernels::Precision::kBf16}) {
      const auto run = [&] {
        return OneStep(small(preset), kCuda, kernels::Conv2dBy::kCudnn, precision).run();
      };
      const Answer one = run(), two = run();
      EXPECT_EQ(one.loss, two.loss);
      EXPECT_EQ(one.gradients, two.gradients);
    }
  }
}

// The emulated device takes long for our own kernels.
TEST(ConvnetsConvolutions, InBf16AreNearThoseOfOurOwnKernels) {
  const auto run = [&](kernels::Conv2dBy by) {
    return OneStep(small("lenet5"), kCuda, by, kernels::Precision::kBf16).run();
  };
  const Answer own = run(kernels::Conv2dBy::kOwn), cudnn = run(kernels::Conv2dBy::kCudnn);
  EXPECT_NEAR(cudnn.loss, own.loss, 0.02 * own.loss);
  EXPECT_LT(distance(own.gradients, cudnn.gradients), 0.03);
}

TEST(ConvnetsConvolutions, AreOurOwnInPassesOfOtherSizes) {
  const ConvnetConfig config = small("lenet5");
  fake_cudnn().reset();
  OneStep cudnn(config, kCuda, kernels::Conv2dBy::kCudnn);
  EXPECT_GT(cudnn.run(kBatch - 1).loss, 0);
  EXPECT_EQ(fake_cudnn().executions, 0);
}

// The fake's plans need 512 bytes, so fewer samples need no more than all do.
TEST(ConvnetsConvolutions, ArePreparedForEachSizeThatFitsTheWorkspace) {
  const ConvnetConfig config = small("lenet5");
  const ModelOptions options{.design = config, .stage = whole_model(config)};
  fake_cudnn().reset();
  ConvolutionChoice choice;
  for (const int64_t samples : {5, 3}) {
    ASSERT_TRUE(add_convolutions(options, samples, kCuda, choice).ok());
  }
  constexpr kernels::Conv2dBy kCudnn = kernels::Conv2dBy::kCudnn;
  EXPECT_EQ(choice.of(5, 1), (kernels::Conv2dKernels{kCudnn, kCudnn, kCudnn}));
  EXPECT_EQ(choice.of(3, 1), choice.of(5, 1));
  EXPECT_EQ(choice.of(3, 0).inputs, kernels::Conv2dBy::kOwn) << "not computed";
  EXPECT_EQ(choice.of(4, 1), kernels::Conv2dKernels());
  choice.workspace_bytes = 100;
  ASSERT_TRUE(add_convolutions(options, 2, kCuda, choice).ok());
  EXPECT_EQ(choice.of(2, 1), kernels::Conv2dKernels()) << "does not fit";
  EXPECT_EQ(choice.dropped_passes, passes_of(config));
}

TEST(ConvnetsConvolutions, LeaveToOurKernelsOnlyThePassesThatDoNotFitTheWorkspace) {
  const ConvnetConfig config = small("lenet5");
  const ModelOptions options{.design = config, .stage = whole_model(config)};
  fake_cudnn().reset();
  ConvolutionChoice choice;
  ASSERT_TRUE(add_convolutions(options, 9, kCuda, choice).ok());
  EXPECT_EQ(choice.dropped_passes, 0);
  fake_cudnn().wide_operation = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
  fake_cudnn().wide_bytes = fake_cudnn().workspace_bytes + 1;
  ASSERT_TRUE(add_convolutions(options, 8, kCuda, choice).ok());
  EXPECT_EQ(choice.of(8, 1), (kernels::Conv2dKernels{.forward = kernels::Conv2dBy::kCudnn,
                                                     .inputs = kernels::Conv2dBy::kCudnn}));
  EXPECT_EQ(choice.dropped_passes, std::ssize(convnet_units(config)));
  EXPECT_EQ(choice.own_passes, 0) << "those with the most samples";
}

TEST(ConvnetsConvolutions, CountThePassesThatCudnnHasNoEngineFor) {
  const ConvnetConfig config = small("lenet5");
  fake_cudnn().reset();
  fake_cudnn().unsupported = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  ConvolutionChoice choice;
  const ModelOptions options{.design = config, .stage = whole_model(config)};
  ASSERT_TRUE(add_convolutions(options, 7, kCuda, choice).ok());
  EXPECT_EQ(choice.own_passes, std::ssize(convnet_units(config)) - 1);
  EXPECT_EQ(choice.reason, "[cudnn] gradient of a convolution's inputs: no kernel for this shape");
}

}  // namespace
}  // namespace lockstep::model
