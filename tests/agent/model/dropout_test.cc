#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "kernels/ops/dropout.h"
#include "tests/agent/model/tiny_gpt.h"
#include "tests/agent/model/tiny_mlp.h"

namespace lockstep::model {
namespace {

using test::Text;
using test::TinyGpt;

constexpr DropoutOptions kDropout{.probability = 0.3, .seed = 11};
const ModelConfig kGpt{2, 8, 2, 5, 11};
const ModelConfig kLlama{.layers = 2,
                         .width = 8,
                         .heads = 2,
                         .context = 5,
                         .vocabulary = 11,
                         .family = Family::kLlama,
                         .hidden = 6};
const ModelConfig kBert{.layers = 2,
                        .width = 8,
                        .heads = 2,
                        .context = 5,
                        .vocabulary = 11,
                        .family = Family::kBert,
                        .hidden = 6,
                        .norm_epsilon = 1e-12};

GptOptions options_of(const ModelConfig& config, Recompute recompute = Recompute::kNone) {
  return {
      .config = config, .stage = whole_model(config), .recompute = recompute, .dropout = kDropout};
}

// Gives the text's samples the numbers from `first_sample` on.
GptInput numbered(GptInput input, int64_t first_sample) {
  input.first_sample = first_sample;
  return input;
}

template <class Store>
void enlarge(Store& store) {
  Random random(3);
  for (float& value : store.values()) value += 0.2f * random.normal();
}

double distance(std::span<const float> a, std::span<const float> b) {
  double gap = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    gap += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(gap / std::max(size, 1e-30));
}

// Central differences, as of the models without dropout (gpt_test.cc). `loss` runs a training pass.
template <class Loss>
void expect_differences(std::span<float> values, std::span<const float> gradient, double terms,
                        const std::string& name, Loss loss) {
  constexpr float kStep = 1e-2f;
  std::vector<float> numeric;
  for (float& value : values) {
    const float before = value;
    value = before + kStep;
    const double above = loss();
    value = before - kStep;
    const double below = loss();
    value = before;
    numeric.push_back(static_cast<float>((above - below) / (2 * kStep) / terms));
  }
  EXPECT_LT(distance(gradient, numeric), 5e-3) << name;
}

TEST(Dropout, OfATransformerHasTheGradientsOfFiniteDifferences) {
  for (const ModelConfig& config : {kGpt, kLlama, kBert}) {
    TinyGpt gpt(options_of(config), {4, 5});
    enlarge(gpt.store);
    const Text text(config, 4, 5, 5);
    const GptInput input = numbered(text.input(), 40);
    gpt.sink.begin_step();
    gpt.forward_backward(input);
    const std::vector<float> gradients = gpt.sink.gradients();
    for (const Parameter& parameter : parameter_table(config)) {
      const bool has_keys = parameter.name.ends_with("attn.c_attn.bias") ||
                            parameter.name.ends_with("attention.self.qkv.bias");
      if (has_keys) continue;  // the keys' part is 0 (Gpt)
      const ArenaEntry& entry = *gpt.store.arena().find(parameter.id);
      expect_differences(gpt.store.values_of(parameter.id),
                         std::span(gradients).subspan(static_cast<size_t>(entry.offset),
                                                      static_cast<size_t>(entry.count)),
                         static_cast<double>(text.rows()), parameter.name,
                         [&] { return gpt.forward_backward(input); });
    }
  }
}

// Also what is dropped after the embedding's norm, which opens a BERT's first layer.
TEST(Dropout, IsTheSameWhateverIsComputedAgain) {
  for (const ModelConfig& config : {kGpt, kLlama, kBert}) {
    const Text text(config, 4, 5, 5);
    const auto gradients = [&](Recompute recompute) {
      TinyGpt gpt(options_of(config, recompute), {4, 5});
      gpt.sink.begin_step();
      gpt.forward_backward(numbered(text.input(), 40));
      return gpt.sink.gradients();
    };
    const std::vector<float> kept = gradients(Recompute::kNone);
    EXPECT_EQ(gradients(Recompute::kOps), kept) << family_name(config.family);
    EXPECT_EQ(gradients(Recompute::kBlocks), kept) << family_name(config.family);
  }
}

TEST(Dropout, FollowsTheNumbersOfTheSamples) {
  const Text text(kGpt, 4, 5, 5);
  TinyGpt whole(options_of(kGpt), {4, 5}), halves(options_of(kGpt), {2, 5});
  const double loss = whole.forward_backward(numbered(text.input(), 8));
  const double first = halves.forward_backward(numbered(text.input(0, 2), 8));
  const double second = halves.forward_backward(numbered(text.input(2, 2), 10));
  EXPECT_NEAR(first + second, loss, 1e-6 * loss);
  EXPECT_LT(distance(halves.sink.gradients(), whole.sink.gradients()), 1e-5);
  EXPECT_GT(std::abs(halves.forward_backward(numbered(text.input(2, 2), 8)) - second), 1e-4);
}

TEST(Dropout, LeavesEvaluationAlone) {
  const Text text(kGpt, 4, 5, 5);
  TinyGpt gpt(options_of(kGpt), {4, 5}), plain(kGpt, {4, 5});
  EXPECT_EQ(gpt.loss(text.input()), plain.loss(text.input()));
  EXPECT_NE(gpt.forward_backward(text.input()), plain.forward_backward(text.input()));
}

TEST(Dropout, OfAnMlpHasTheGradientsOfFiniteDifferences) {
  const std::vector<float> features = {1, 2, 3, -1, 0, 2, 0.5f, -2, 1, 3, 1, -1};
  const std::vector<int32_t> labels = {0, 1, 1, 0};
  for (const MlpActivation activation : {MlpActivation::kGelu, MlpActivation::kTanh}) {
    const MlpConfig config{.inputs = 3, .hidden = {8, 5}, .outputs = 2, .activation = activation};
    test::TinyMlp mlp(config, 4, kernels::cpu_ops(), nullptr, kDropout);
    enlarge(mlp.store);
    const DeviceBatch batch{.rows = 4, .counted = 4, .tensors = {features.data(), labels.data()}};
    const auto loss = [&] { return mlp.forward_backward(batch, 4); };
    loss();
    const std::vector<float> gradients = mlp.sink.gradients();
    for (const Parameter& parameter : parameter_table(config)) {
      const ArenaEntry& entry = *mlp.store.arena().find(parameter.id);
      expect_differences(mlp.store.values_of(parameter.id),
                         std::span(gradients).subspan(static_cast<size_t>(entry.offset),
                                                      static_cast<size_t>(entry.count)),
                         4, parameter.name, loss);
    }
  }
}

// Images, whose samples are numbered from `first` on.
struct Digits {
  static constexpr ConvnetConfig kNet{
      .kind = ConvnetKind::kLenet5, .height = 12, .width = 12, .channels = 1, .classes = 3};
  static constexpr int64_t kPixels = 144;
  std::vector<float> pixels;
  std::vector<int32_t> labels = {0, 1, 2, 1};

  Digits() {
    for (int64_t i = 0; i < 4 * kPixels; ++i) {
      pixels.push_back(static_cast<float>(i * i % 23) / 11 - 1);
    }
  }
  PassInput input(int64_t begin, int64_t count, int64_t first) const {
    return {.batch = {.rows = count,
                      .counted = count,
                      .tensors = {pixels.data() + begin * kPixels, labels.data() + begin}},
            .gradient_scale = 0.25f,
            .first_sample = first + begin};
  }
};

double passed(test::TinyMlp& net, const PassInput& input) {
  EXPECT_TRUE(net.training->begin(input).ok());
  EXPECT_TRUE(forward_pass(*net.model, net.store, *net.training).ok());
  EXPECT_TRUE(backward_pass(*net.model, net.store, *net.training, net.sink).ok());
  const MicroBatch::Terms losses = net.training->losses();
  return std::accumulate(losses.values, losses.values + losses.count, 0.0);
}

TEST(Dropout, OfAConvnetFollowsTheNumbersOfTheSamples) {
  const Digits digits;
  test::TinyMlp whole(Digits::kNet, 4, kernels::cpu_ops(), nullptr, kDropout);
  test::TinyMlp halves(Digits::kNet, 4, kernels::cpu_ops(), nullptr, kDropout);
  const double loss = passed(whole, digits.input(0, 4, 8));
  const double first = passed(halves, digits.input(0, 2, 8));
  const double second = passed(halves, digits.input(2, 2, 8));
  EXPECT_NEAR(first + second, loss, 1e-6 * loss);
  EXPECT_LT(distance(halves.sink.gradients(), whole.sink.gradients()), 1e-5);
  EXPECT_GT(std::abs(passed(halves, digits.input(2, 2, 6)) - second), 1e-4);
  test::TinyMlp plain(Digits::kNet, 4);
  EXPECT_NE(passed(plain, digits.input(0, 4, 8)), loss);
  const DeviceBatch batch = digits.input(0, 4, 8).batch;
  EXPECT_EQ(whole.loss(batch), plain.loss(batch)) << "evaluation drops nothing";
}

// For one sample, dropping what a linear layer reads is dropping columns of its matrix.
TEST(Dropout, OfAConvnetIsThatOfTheColumnsOfItsLinearLayers) {
  const Digits digits;
  constexpr int64_t kSample = 9;
  test::TinyMlp dropping(Digits::kNet, 1, kernels::cpu_ops(), nullptr, kDropout);
  test::TinyMlp plain(Digits::kNet, 1);
  const uint32_t threshold = kernels::dropout_threshold(kDropout.probability);
  const std::vector<Parameter> table = parameter_table(Digits::kNet);
  for (const int64_t block : {2, 3, 4}) {
    const Parameter& weight =
        table[static_cast<size_t>(block_parameters(Digits::kNet, block).front())];
    const int64_t columns = weight.dims[1];
    const uint64_t key = kernels::dropout_key(kDropout.seed, block);
    const std::span<float> values = plain.store.values_of(weight.id);
    for (int64_t i = 0; i < weight.count(); ++i) {
      const bool is = kernels::is_kept(key, kSample * columns + i % columns, threshold);
      values[static_cast<size_t>(i)] *= is ? kernels::dropout_scale(kDropout.probability) : 0.0f;
    }
  }
  const double loss = passed(plain, digits.input(0, 1, kSample));
  EXPECT_NEAR(passed(dropping, digits.input(0, 1, kSample)), loss, 1e-5 * loss);
  for (const Parameter& parameter : table) {
    if (!parameter.name.ends_with("bias")) continue;  // whose gradients are those of each layer
    EXPECT_LT(distance(dropping.sink.of(parameter.id), plain.sink.of(parameter.id)), 1e-5)
        << parameter.name;
  }
}

// As many of a million elements are kept as the probability says, and neighbours do not depend on
// each other.
TEST(Dropout, KeepsTheShareThatTheProbabilitySays) {
  constexpr int64_t kCount = 1 << 20;
  for (const double probability : {0.1, 0.5, 0.9}) {
    const uint32_t threshold = kernels::dropout_threshold(probability);
    const uint64_t key = kernels::dropout_key(1, 2);
    int64_t kept = 0, pairs = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const bool is = kernels::is_kept(key, i, threshold);
      kept += is ? 1 : 0;
      pairs += is && kernels::is_kept(key, i ^ 1, threshold) ? 1 : 0;
    }
    const double share = static_cast<double>(kept) / kCount;
    // Five standard deviations.
    EXPECT_NEAR(share, 1 - probability, 5 * std::sqrt(probability * (1 - probability) / kCount));
    EXPECT_NEAR(static_cast<double>(pairs) / kCount, share * share, 0.003);
  }
}

}  // namespace
}  // namespace lockstep::model
