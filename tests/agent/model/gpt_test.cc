#include "agent/model/transformer/gpt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/device/parallel.h"
#include "tests/agent/model/tiny_gpt.h"

namespace lockstep::model {
namespace {

using test::ArenaSink;
using test::ArenaStore;
using test::Text;
using test::TinyGpt;

const ModelConfig kTiny{2, 16, 2, 8, 17};
const ModelConfig kTinyLlama{.layers = 2,
                             .width = 16,
                             .heads = 4,
                             .context = 8,
                             .vocabulary = 17,
                             .family = Family::kLlama,
                             .hidden = 24,
                             .kv_heads = 2};

const ModelConfig kTinyBert{.layers = 2,
                            .width = 16,
                            .heads = 4,
                            .context = 8,
                            .vocabulary = 17,
                            .family = Family::kBert,
                            .hidden = 24,
                            .norm_epsilon = 1e-12};

ModelConfig with_own_head(ModelConfig config) {
  config.tied = false;
  return config;
}

// Each family, with a tied head and with its own head.
class EachModel : public ::testing::TestWithParam<ModelConfig> {};
INSTANTIATE_TEST_SUITE_P(Models, EachModel,
                         ::testing::Values(kTiny, with_own_head(kTiny), kTinyLlama,
                                           with_own_head(kTinyLlama), kTinyBert,
                                           with_own_head(kTinyBert)),
                         [](const auto& info) {
                           return std::string(family_name(info.param.family)) +
                                  (info.param.tied ? "Tied" : "Untied");
                         });

// Makes the values large enough that every gradient is clearly above rounding errors.
void enlarge(ArenaStore& store, uint64_t seed) {
  Random random(seed);
  for (float& value : store.values()) value += 0.2f * random.normal();
}

double difference(std::span<const float> a, std::span<const float> b) {
  double square = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double gap = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    square += gap * gap;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(square / std::max(size, 1e-30));
}

bool is_key_bias(const Parameter& parameter, int64_t element, int64_t width) {
  return (parameter.name.ends_with("attn.c_attn.bias") ||
          parameter.name.ends_with("attention.self.qkv.bias")) &&
         element / width == 1;
}

TEST(Gpt, BeginsWithTheLossOfAGuess) {
  for (const ModelConfig& config : {kTiny, kTinyLlama, kTinyBert, ModelConfig{4, 128, 4, 64, 256},
                                    ModelConfig{2, 64, 4, 32, 5000}}) {
    TinyGpt gpt(config, {4, config.context, PassMode::kEvaluate});
    const Text text(config, 4, config.context, 7);
    const double loss = gpt.loss(text.input()) / static_cast<double>(text.rows());
    const double guess = std::log(static_cast<double>(config.vocabulary));
    EXPECT_NEAR(loss, guess, 0.02 * guess) << "vocabulary " << config.vocabulary;
  }
}

// Central differences of a loss in fp32, summed over 20 tokens. With a step of 1e-2, rounding and
// the third derivative cause a relative error of about 1e-3. The bound is per parameter, on the
// whole tensor.
TEST_P(EachModel, HasTheGradientsOfFiniteDifferencesInEveryParameter) {
  constexpr float kStep = 1e-2f;
  ModelConfig config = GetParam();
  config.width = 8;
  config.heads = 2;
  config.context = 5;
  config.vocabulary = 11;
  if (config.hidden > 0) config.hidden = 6;
  if (config.kv_heads > 0) config.kv_heads = 1;
  TinyGpt gpt(config, {4, 5});
  enlarge(gpt.store, 3);
  const Text text(config, 4, 5, 5);
  gpt.sink.begin_step();
  gpt.forward_backward(text.input());
  for (const Parameter& parameter : parameter_table(config)) {
    std::span<float> values = gpt.store.values_of(parameter.id);
    std::vector<float> numeric;
    std::vector<float> ours;
    for (size_t i = 0; i < values.size(); ++i) {
      if (is_key_bias(parameter, static_cast<int64_t>(i), config.width)) continue;
      const float before = values[i];
      values[i] = before + kStep;
      const double above = gpt.loss(text.input());
      values[i] = before - kStep;
      const double below = gpt.loss(text.input());
      values[i] = before;
      const double slope = (above - below) / (2.0 * static_cast<double>(kStep));
      numeric.push_back(static_cast<float>(slope / static_cast<double>(text.rows())));
      ours.push_back(gpt.sink.of(parameter.id)[i]);
    }
    EXPECT_LT(difference(ours, numeric), 5e-3) << parameter.name;
  }
}

TEST(Gpt, HasNoGradientInTheKeysBias) {
  TinyGpt gpt(kTiny, {4, 8});
  enlarge(gpt.store, 3);
  gpt.sink.begin_step();
  gpt.forward_backward(Text(kTiny, 4, 8, 5).input());
  for (const Parameter& parameter : parameter_table(kTiny)) {
    const std::span<float> gradient = gpt.sink.of(parameter.id);
    for (size_t i = 0; i < gradient.size(); ++i) {
      if (!is_key_bias(parameter, static_cast<int64_t>(i), kTiny.width)) continue;
      EXPECT_EQ(gradient[i], 0.0f);
    }
  }
}

TEST_P(EachModel, AccumulatesTwoMicroBatchesToOneOfDoubleSize) {
  const ModelConfig config = GetParam();
  const Text text(config, 4, 8, 5);
  TinyGpt whole(config, {4, 8});
  enlarge(whole.store, 3);
  whole.sink.begin_step();
  const double loss = whole.forward_backward(text.input());
  TinyGpt halves(config, {2, 8});
  enlarge(halves.store, 3);
  halves.sink.begin_step();
  const double first = halves.forward_backward(text.input(0, 2));
  const double second = halves.forward_backward(text.input(2, 2));
  EXPECT_NEAR(first + second, loss, 1e-6 * loss);
  EXPECT_EQ(halves.sink.micro_batches(), 2);
  for (const Parameter& parameter : parameter_table(config)) {
    EXPECT_LT(difference(halves.sink.of(parameter.id), whole.sink.of(parameter.id)), 1e-5)
        << parameter.name;
  }
}

TEST_P(EachModel, IsTheSameBitForBitEveryTime) {
  const ModelConfig config = GetParam();
  const Text text(config, 4, 8, 5);
  for (const int thread_count : {1, 2}) {
    kernels::set_threads(thread_count);
    TinyGpt first(config, {4, 8});
    TinyGpt second(config, {4, 8});
    for (TinyGpt* gpt : {&first, &second}) {
      gpt->sink.begin_step();
      gpt->forward_backward(text.input());
      gpt->sink.begin_step();  // leftovers of the first pass must not matter
      gpt->forward_backward(text.input());
    }
    EXPECT_EQ(first.sink.gradients(), second.sink.gradients());
    second.sink.begin_step();
    second.forward_backward(text.input());
    EXPECT_EQ(first.sink.gradients(), second.sink.gradients());
  }
  kernels::set_threads(1);
}

TEST_P(EachModel, EvaluatesToTheLossOfTraining) {
  const ModelConfig config = GetParam();
  const Text text(config, 4, 8, 5);
  TinyGpt train(config, {4, 8});
  TinyGpt evaluate(config, {4, 8, PassMode::kEvaluate});
  EXPECT_EQ(train.forward_backward(text.input()), evaluate.loss(text.input()));
}

TEST_P(EachModel, TakesSmallerBatchesThanItsArenaWasMadeFor) {
  const ModelConfig config = GetParam();
  const Text text(config, 2, 5, 5);
  TinyGpt fitted(config, {2, 5});
  TinyGpt roomy(config, {4, 8});
  for (TinyGpt* gpt : {&fitted, &roomy}) {
    gpt->sink.begin_step();
    gpt->forward_backward(text.input());
  }
  EXPECT_EQ(fitted.sink.gradients(), roomy.sink.gradients());
}

// A token's prediction depends on the tokens after it in a BERT alone.
TEST_P(EachModel, SeesLaterTokensOnlyIfItIsBidirectional) {
  const ModelConfig config = GetParam();
  Text text(config, 1, 8, 5);
  TinyGpt gpt(config, {1, 8});
  enlarge(gpt.store, 3);
  gpt.forward_backward(text.input());
  const float first = gpt.batch.token_losses()[0];
  text.tokens.back() = (text.tokens.back() + 1) % static_cast<int32_t>(config.vocabulary);
  gpt.forward_backward(text.input());
  EXPECT_EQ(gpt.batch.token_losses()[0] != first, config.family == Family::kBert);
}

TEST(Gpt, LeavesOutTokensWithoutATarget) {
  Text text(kTiny, 4, 8, 5);
  TinyGpt gpt(kTiny, {4, 8});
  const double all = gpt.forward_backward(text.input());
  const double last = static_cast<double>(gpt.batch.token_losses()[text.rows() - 1]);
  text.targets.back() = -1;
  EXPECT_NEAR(gpt.forward_backward(text.input()), all - last, 1e-6 * all);
}

TEST_P(EachModel, SaysOnceAndInDescendingOrderWhichGradientsAreComplete) {
  const ModelConfig config = GetParam();
  TinyGpt gpt(config, {4, 8});
  gpt.sink.begin_step();
  gpt.forward_backward(Text(config, 4, 8, 5).input());
  std::vector<int64_t> expected;
  for (const Parameter& parameter : parameter_table(config)) {
    expected.insert(expected.begin(), parameter.id);
  }
  EXPECT_EQ(gpt.sink.ready_ids(), expected);
  EXPECT_EQ(gpt.store.held(), 0);
}

TEST(Gpt, KeepsPaddingRowsOfTheVocabularyAtZero) {
  const ModelConfig config{1, 16, 2, 8, 5000};
  ASSERT_EQ(padded_vocabulary(config, 1), 5056);
  TinyGpt gpt(config, {2, 8});
  gpt.sink.begin_step();
  gpt.forward_backward(Text(config, 2, 8, 5).input());
  const std::span<float> gradient = gpt.sink.of(kTokenEmbedding);
  for (size_t i = 5000 * 16; i < gradient.size(); ++i) ASSERT_EQ(gradient[i], 0.0f);
}

// bf16 has 8 fraction bits in both factors of every product: a few thousandths of the loss.
TEST(Gpt, StaysCloseInBf16AndTakesBf16Copies) {
  const ModelConfig config{2, 64, 4, 32, 256};
  const Text text(config, 4, 32, 5);
  TinyGpt exact(config, {4, 32});
  TinyGpt rounded(config, {4, 32}, 1, kernels::Precision::kBf16);
  TinyGpt copied(config, {4, 32}, 1, kernels::Precision::kBf16);
  std::vector<kernels::Bf16> copies(copied.store.values().size());
  kernels::cpu_ops().cast(copied.stream, {.x = copied.store.values().data(),
                                          .out = copies.data(),
                                          .count = static_cast<int64_t>(copies.size())});
  copied.store.use_copies(std::move(copies));
  const double loss = exact.forward_backward(text.input());
  EXPECT_NEAR(rounded.forward_backward(text.input()), loss, 5e-3 * loss);
  EXPECT_NEAR(copied.forward_backward(text.input()), loss, 5e-3 * loss);
  for (const Parameter& parameter : parameter_table(config)) {
    if (parameter.rank != 2) continue;
    EXPECT_LT(difference(copied.sink.of(parameter.id), exact.sink.of(parameter.id)), 3e-2)
        << parameter.name;
  }
}

TEST_P(EachModel, UsesTheMemoryThatThePlanSays) {
  const ModelConfig config = GetParam();
  TinyGpt gpt(config, {4, 8});
  const ModelMemory plan =
      gpt_memory(gpt.model.options(), {}, {.batch = 4, .sequence = 8}, kernels::DeviceType::kCpu);
  EXPECT_EQ(plan.activations, static_cast<size_t>(gpt.batch.arena().bytes));
}

GptOptions tiny_options(const ModelConfig& config, Recompute recompute,
                        int64_t head_logits_max = kHeadLogitsMax) {
  return {.config = config,
          .stage = whole_model(config),
          .recompute = recompute,
          .head_logits_max = head_logits_max};
}

// The weight's gradient is summed chunk by chunk: fp32 in another order.
TEST_P(EachModel, HasTheSameGradientsWithAHeadInChunks) {
  const ModelConfig config = GetParam();
  const Text text(config, 3, 7, 5);
  TinyGpt whole(config, {3, 7});
  enlarge(whole.store, 3);
  whole.sink.begin_step();
  const double loss = whole.forward_backward(text.input());
  for (const int64_t rows : {1, 4, 8, 16}) {
    TinyGpt chunked(tiny_options(config, Recompute::kNone, rows * config.vocabulary), {3, 7});
    ASSERT_EQ(chunked.batch.arena().head_rows, rows);
    enlarge(chunked.store, 3);
    chunked.sink.begin_step();
    EXPECT_NEAR(chunked.forward_backward(text.input()), loss, 1e-6 * loss);
    EXPECT_NEAR(chunked.loss(text.input()), loss, 1e-6 * loss);
    for (const Parameter& parameter : parameter_table(config)) {
      EXPECT_LT(difference(chunked.sink.of(parameter.id), whole.sink.of(parameter.id)), 1e-6)
          << parameter.name << " with chunks of " << rows << " rows";
    }
  }
}

TEST(Gpt, GivesTheLogitsOfTheRowsThatAreAskedFor) {
  const Text text(kTiny, 2, 8, 5);
  TinyGpt gpt(kTiny, {2, 8, PassMode::kEvaluate});
  enlarge(gpt.store, 3);
  const auto logits_of = [&](int64_t begin, int64_t rows) {
    GptInput input = text.input();
    input.targets = nullptr;
    input.logits_begin = begin;
    input.logits_rows = rows;
    gpt.forward(input);
    const float* logits = gpt.batch.logits().f32();
    return std::vector<float>(logits, logits + rows * kTiny.vocabulary);
  };
  const std::vector<float> all = logits_of(0, 16);
  const std::vector<float> some = logits_of(5, 3);
  EXPECT_LT(difference(some, std::span(all).subspan(5 * 17, 3 * 17)), 1e-6);
  EXPECT_GT(difference(some, std::span(all).subspan(4 * 17, 3 * 17)), 1e-2);
}

// Two micro-batches are between forward and backward at the same time; one is smaller than the
// arena.
TEST_P(EachModel, HasTheSameGradientsBitForBitWhateverItComputesAgain) {
  const ModelConfig config = GetParam();
  const Text text(config, 4, 8, 5);
  const auto gradients = [&](Recompute recompute) {
    TinyGpt gpt(tiny_options(config, recompute), {4, 8});
    enlarge(gpt.store, 3);
    GptBatch other = gpt.model.make_micro_batch({4, 8}).value();
    gpt.sink.begin_step();
    gpt.forward(text.input());
    EXPECT_TRUE(other.begin(text.input(1, 2)).ok());
    EXPECT_TRUE(forward_pass(gpt.model, gpt.store, other).ok());
    EXPECT_TRUE(backward_pass(gpt.model, gpt.store, gpt.batch, gpt.sink).ok());
    EXPECT_TRUE(backward_pass(gpt.model, gpt.store, other, gpt.sink).ok());
    return gpt.sink.gradients();
  };
  const std::vector<float> kept = gradients(Recompute::kNone);
  EXPECT_EQ(gradients(Recompute::kOps), kept);
  EXPECT_EQ(gradients(Recompute::kBlocks), kept);
}

TEST(Gpt, KeepsActivationsInBf16OnlyOnCuda) {
  EXPECT_EQ(activation_dtype(kernels::DeviceType::kCpu, kernels::Precision::kBf16),
            kernels::DType::kF32);
  EXPECT_EQ(activation_dtype(kernels::DeviceType::kCuda, kernels::Precision::kF32),
            kernels::DType::kF32);
  EXPECT_EQ(activation_dtype(kernels::DeviceType::kCuda, kernels::Precision::kBf16),
            kernels::DType::kBf16);
}

TEST(Gpt, RefusesAModelThatCannotBeBuilt) {
  kernels::Stream stream;
  WholeTensor whole;
  ModelConfig odd = kTiny;
  odd.heads = 3;
  const Result<Gpt> model = Gpt::create({odd, whole_model(odd)}, kernels::cpu_ops(), stream, whole);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().message, "model.heads: 3 does not divide model.width: 16");
  EXPECT_EQ(Gpt::create({kTiny, {0, 1}}, kernels::cpu_ops(), stream, whole).error().code,
            Code::kInvalid);
}

}  // namespace
}  // namespace lockstep::model
