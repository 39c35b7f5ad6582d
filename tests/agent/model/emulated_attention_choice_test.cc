// A model that uses cuDNN's attention, on a CUDA device with cuDNN emulated on the CPU. Both passes
// of every layer call it, only for passes of the chosen shape, with the results of our own kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/ops/dnn/dnn.h"
#include "tests/agent/model/tiny_gpt.h"
#include "tests/support/emulated_cuda/fake_cudnn.h"

namespace lockstep::model {
namespace {

using lockstep::test::ArenaSink;
using lockstep::test::ArenaStore;
using lockstep::test::Text;
using test::fake_cudnn;

constexpr kernels::Device kCuda{kernels::DeviceType::kCuda, 0};
constexpr int64_t kLayers = 2, kBatch = 2, kSequence = 8;
const ModelConfig kGpt{kLayers, 128, 2, kSequence, 64};
const ModelConfig kLlama{.layers = kLayers,
                         .width = 256,
                         .heads = 4,
                         .context = kSequence,
                         .vocabulary = 64,
                         .family = Family::kLlama,
                         .hidden = 64,
                         .tied = false,
                         .kv_heads = 2};

// Computes the gradients of one micro-batch in bf16. The emulated device's memory is host memory,
// so parameters and gradients may be allocated on the host.
class OneStep {
 public:
  OneStep(const ModelConfig& config, kernels::AttentionBy by,
          Recompute recompute = Recompute::kNone)
      : config_(config),
        stream_(kernels::Stream::create(kCuda).value()),
        model_(Gpt::create({.config = config,
                            .stage = whole_model(config),
                            .precision = kernels::Precision::kBf16,
                            .recompute = recompute,
                            .attention = choice(config, by)},
                           *kernels::device_ops(kernels::DeviceType::kCuda).value(), stream_,
                           whole_)
                   .value()),
        store_(config, whole_model(config)),
        sink_(store_.arena()) {
    store_.initialise({}, 1);
    std::vector<kernels::Bf16> copies(store_.values().size());
    model_.ops().cast(stream_, {.x = kernels::ConstView(store_.values().data()),
                                .out = kernels::View(copies.data()),
                                .count = std::ssize(copies)});
    EXPECT_TRUE(stream_.synchronize().ok());
    store_.use_copies(std::move(copies));
  }

  static AttentionChoice choice(const ModelConfig& config, kernels::AttentionBy by) {
    AttentionChoice choice{.by = by, .shape = attention_shape(config, {}, kBatch, kSequence)};
    if (by == kernels::AttentionBy::kCudnn) {
      choice.workspace_bytes = kernels::dnn::prepare_attention(kCuda, choice.shape).value();
    }
    return choice;
  }

  const std::vector<float>& gradients(int64_t batch) {
    const Text text(config_, batch, kSequence, 3);
    GptBatch micro = model_.make_micro_batch({batch, kSequence, PassMode::kTrain}).value();
    EXPECT_TRUE(micro.begin(text.input()).ok());
    EXPECT_TRUE(forward_pass(model_, store_, micro).ok());
    EXPECT_TRUE(backward_pass(model_, store_, micro, sink_).ok());
    const Status status = stream_.synchronize();
    EXPECT_TRUE(status.ok()) << status.error().message;
    return sink_.gradients();
  }
  Gpt& model() { return model_; }

 private:
  ModelConfig config_;
  kernels::Stream stream_;
  WholeTensor whole_;
  Gpt model_;
  ArenaStore store_;
  ArenaSink sink_;
};

double distance(const std::vector<float>& one, const std::vector<float>& two) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    difference += (one[i] - two[i]) * (one[i] - two[i]);
    size += one[i] * one[i];
  }
  return std::sqrt(difference / size);
}

class AttentionChoiceOfAModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = kernels::dnn::available(); !status.ok()) {
      GTEST_SKIP() << status.error().message;
    }
    fake_cudnn().reset();
  }
};

TEST_F(AttentionChoiceOfAModel, GivesTheSameGradientsByCudnnUpToRounding) {
  for (const ModelConfig& config : {kGpt, kLlama}) {
    fake_cudnn().reset();
    OneStep own(config, kernels::AttentionBy::kOwn);
    const std::vector<float>& expected = own.gradients(kBatch);
    EXPECT_EQ(fake_cudnn().executions, 0);
    OneStep cudnn(config, kernels::AttentionBy::kCudnn);
    EXPECT_LT(distance(expected, cudnn.gradients(kBatch)), 0.03);
    EXPECT_EQ(fake_cudnn().executions, 2 * kLayers) << "forward and backward of each layer";
  }
}

TEST_F(AttentionChoiceOfAModel, IsTakenWhereForwardIsComputedAgainToo) {
  OneStep kept(kGpt, kernels::AttentionBy::kCudnn);
  const std::vector<float> expected = kept.gradients(kBatch);
  fake_cudnn().reset();
  OneStep again(kGpt, kernels::AttentionBy::kCudnn, Recompute::kBlocks);
  EXPECT_EQ(again.gradients(kBatch), expected);
  EXPECT_EQ(fake_cudnn().executions, 3 * kLayers);
}

TEST_F(AttentionChoiceOfAModel, IsForPassesOfItsShapeAlone) {
  OneStep cudnn(kGpt, kernels::AttentionBy::kCudnn);
  EXPECT_FALSE(cudnn.gradients(1).empty());
  EXPECT_EQ(fake_cudnn().executions, 0);
}

TEST_F(AttentionChoiceOfAModel, HasItsWorkspaceInThePlan) {
  OneStep model(kGpt, kernels::AttentionBy::kCudnn);
  AttentionChoice large = OneStep::choice(kGpt, kernels::AttentionBy::kCudnn);
  large.workspace_bytes = size_t{1} << 30;
  kernels::Stream other = kernels::Stream::create(kCuda).value();
  WholeTensor whole;
  const Gpt wanting =
      Gpt::create({.config = kGpt,
                   .stage = whole_model(kGpt),
                   .precision = kernels::Precision::kBf16,
                   .attention = large},
                  *kernels::device_ops(kernels::DeviceType::kCuda).value(), other, whole)
          .value();
  const ActivationShape shape{kBatch, kSequence, PassMode::kTrain};
  EXPECT_GE(wanting.memory_for(shape).workspace, large.workspace_bytes);
  EXPECT_LT(model.model().memory_for(shape).workspace, large.workspace_bytes);
  EXPECT_LT(wanting.memory_for({1, kSequence, PassMode::kTrain}).workspace, large.workspace_bytes);
}

}  // namespace
}  // namespace lockstep::model
