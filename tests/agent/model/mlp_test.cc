#include "agent/model/mlp/mlp.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/agent/model/allocation_count.h"
#include "tests/agent/model/tiny_mlp.h"

namespace lockstep::model {
namespace {

const MlpConfig kClassifier{.inputs = 3, .hidden = {8, 5}, .outputs = 2};

// Samples of the classifier.
struct Samples {
  std::vector<float> features = {1, 2, 3, -1, 0, 2, 0.5f, -2, 1, 3, 1, -1};
  std::vector<int32_t> labels = {0, 1, 1, 0};

  DeviceBatch batch(int64_t first, int64_t rows) const {
    return {.rows = rows,
            .counted = rows,
            .tensors = {features.data() + first * kClassifier.inputs, labels.data() + first}};
  }
};

TEST(Mlp, AddsTheGradientsOfTwoMicroBatchesToThoseOfOne) {
  const Samples samples;
  test::TinyMlp whole(kClassifier, 4), halves(kClassifier, 4);
  const double loss = whole.forward_backward(samples.batch(0, 4), 4);
  const double sum = halves.forward_backward(samples.batch(0, 2), 4) +
                     halves.forward_backward(samples.batch(2, 2), 4);
  EXPECT_NEAR(sum, loss, 1e-5);
  for (const Parameter& parameter : parameter_table(kClassifier)) {
    const std::span<const float> one = whole.sink.of(parameter.id),
                                 two = halves.sink.of(parameter.id);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-6) << parameter.name;
  }
}

TEST(Mlp, ReportsItsGradientsFromTheLastToTheFirst) {
  test::TinyMlp mlp(kClassifier, 4);
  (void)mlp.forward_backward(Samples().batch(0, 4), 4);
  EXPECT_EQ(mlp.sink.ready_ids(), (std::vector<int64_t>{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(mlp.sink.micro_batches(), 1);
}

TEST(Mlp, HasTheLossOfTrainingAndRightAnswersWhenItEvaluates) {
  Samples samples;
  test::TinyMlp mlp(kClassifier, 4);
  const double loss = mlp.loss(samples.batch(0, 4));
  EXPECT_EQ(loss, mlp.forward_backward(samples.batch(0, 4), 4));
  EXPECT_EQ(mlp.training->hits().count, 0);
  const double right = mlp.sum_of(mlp.evaluating->hits());
  for (int32_t& label : samples.labels) label = 1 - label;
  (void)mlp.loss(samples.batch(0, 4));
  EXPECT_EQ(mlp.sum_of(mlp.evaluating->hits()), 4 - right);
  // Fewer samples than there is room for.
  (void)mlp.loss(samples.batch(0, 1));
  EXPECT_EQ(mlp.evaluating->hits().count, 1);
  EXPECT_EQ(mlp.evaluating->losses().count, 1);
}

TEST(Mlp, DoesNotAllocateInAPass) {
  for (const MlpActivation activation :
       {MlpActivation::kRelu, MlpActivation::kGelu, MlpActivation::kTanh}) {
    MlpConfig config = kClassifier;
    config.activation = activation;
    kernels::OpTable ops = kernels::cpu_ops();  // products of the library may allocate
    ops.matmul_forward = [](kernels::Stream&, const kernels::MatmulForward&) {};
    ops.matmul_backward = [](kernels::Stream&, const kernels::MatmulBackward&) {};
    test::TinyMlp mlp(config, 4, ops);
    const Samples samples;
    const PassInput input{.batch = samples.batch(0, 4)};
    std::vector<ParamView> views(2);
    const int64_t before = test::allocation_count();
    ASSERT_TRUE(mlp.training->begin(input).ok());
    for (int64_t layer = 0; layer < 3; ++layer) {
      ASSERT_TRUE(mlp.training->forward(layer, views).ok());
    }
    for (int64_t layer = 2; layer >= 0; --layer) {
      ASSERT_TRUE(mlp.training->backward(layer, views, mlp.sink).ok());
    }
    EXPECT_EQ(test::allocation_count(), before);
  }
}

TEST(Mlp, RefusesWhatIsNoModelAndTexts) {
  kernels::Stream stream;
  WholeTensor whole;
  const auto made = [&](const ModelOptions& options) {
    return make_model(options, kernels::cpu_ops(), stream, whole);
  };
  EXPECT_NE(made({.design = MlpConfig{.inputs = 0, .outputs = 2}, .stage = {0, 1}})
                .error()
                .message.find("model.inputs: 0"),
            std::string::npos);
  test::TinyMlp mlp(kClassifier, 4);
  const Result<std::vector<int32_t>> text = mlp.model->generate(mlp.store, {.prompt = {1}});
  EXPECT_EQ(text.error().message,
            "[generate] expected a transformer, got an MLP: it has no text to continue");
  EXPECT_EQ(generate_memory(mlp.options, {}, kernels::DeviceType::kCpu).device, 0u);
  EXPECT_FALSE(attention_of(kClassifier, {}, {4, 1}).has_value());
}

// All places of an arena, one after the other without overlap.
TEST(MlpLayout, HasAPlaceForEveryTensorThatAPassNeeds) {
  MlpConfig config = kClassifier;
  config.activation = MlpActivation::kGelu;
  const MlpLayout train = mlp_layout(config, {100, 1}, {.stage = {0, 3}});
  EXPECT_EQ(train.input, -1) << "the batch has them in fp32";
  EXPECT_EQ(train.hits, -1);
  EXPECT_EQ(train.hidden, (std::vector<int64_t>{0, 6656}));  // 3200 bytes each, then 2000
  EXPECT_EQ(train.hidden_in, (std::vector<int64_t>{3328, 8704}));
  EXPECT_EQ(train.outputs, 10752);
  EXPECT_EQ(train.losses, 11776);
  EXPECT_EQ(train.bytes, 12288);
  EXPECT_EQ(train.gradients[1], 3328);
  EXPECT_EQ(train.scratch_bytes, 6656);
  const MlpLayout half =
      mlp_layout(config, {100, 1, PassMode::kEvaluate}, {.stage = {0, 3}, .value_bytes = 2});
  EXPECT_EQ(half.input, 0);
  EXPECT_EQ(half.hidden_in, (std::vector<int64_t>{-1, -1}));
  EXPECT_GE(half.hits, 0);
  EXPECT_EQ(half.scratch_bytes, 0);
}

// Its input, its own hidden layer, whose gradient waits, and no loss.
TEST(MlpLayout, OfAStageHasOnlyItsLayers) {
  const MlpLayout stage =
      mlp_layout(kClassifier, {100, 1}, {.stage = {1, 2}, .splits_backward = true});
  EXPECT_EQ(stage.input, 0);
  EXPECT_EQ(stage.hidden, (std::vector<int64_t>{3328}));
  EXPECT_EQ(stage.late, (std::vector<int64_t>{5376}));
  EXPECT_EQ(stage.outputs, -1);
  EXPECT_EQ(stage.losses, -1);
  EXPECT_EQ(stage.bytes, 7424);
  EXPECT_EQ(stage.scratch_bytes, 6656) << "gradients of the input too, which is wider";
}

}  // namespace
}  // namespace lockstep::model
