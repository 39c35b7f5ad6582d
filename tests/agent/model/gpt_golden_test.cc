// Compares the model with PyTorch. tests/golden/make_gpt2_golden.py, make_llama_golden.py and
// make_bert_golden.py describe the files, golden.py derives the deviations. Reads the committed
// files, or the one that LOCKSTEP_GOLDEN_FILE names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include "agent/optim/clip.h"
#include "agent/optim/optimizer.h"
#include "tests/agent/model/golden_config.h"
#include "tests/agent/model/tiny_gpt.h"
#include "tests/golden/golden_file.h"

namespace lockstep::model {
namespace {

using test::kDeviations;
using test::kUnitRoundoff;
using test::TinyGpt;

class Golden : public test::GoldenFile {
 public:
  using GoldenFile::GoldenFile;

  // All of a parameter: its parts one after the other, where the file has them apart.
  std::vector<float> parameter(const std::string& prefix, const Parameter& parameter) const {
    std::vector<float> values;
    for (const ParameterPart& part : parameter.parts) {
      if (part.name.empty()) break;
      const std::vector<float> rows = tensor<float>(prefix + part.name);
      values.insert(values.end(), rows.begin(), rows.end());
    }
    return values.empty() ? tensor<float>(prefix + parameter.name) : values;
  }
  ModelConfig config() const {
    const auto text = [this](const char* key) { return metadata(key); };
    if (is("llama")) return test::golden_llama(text);
    if (is("bert")) return test::golden_bert(text);
    return {integer("layers"), integer("width"), integer("heads"), integer("context"),
            integer("vocabulary")};
  }
  bool is(const char* family) const {
    return has_metadata("family") && metadata("family") == family;
  }
};

std::vector<std::string> golden_paths() {
  if (const char* fresh = std::getenv("LOCKSTEP_GOLDEN_FILE")) return {fresh};
  return {LOCKSTEP_SOURCE_DIR "/tests/golden/gpt2.safetensors",
          LOCKSTEP_SOURCE_DIR "/tests/golden/llama.safetensors",
          LOCKSTEP_SOURCE_DIR "/tests/golden/bert.safetensors"};
}

class GptAgainstPyTorch : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (const Parameter& parameter : parameter_table(config_)) {
      const std::vector<float> values = golden_.parameter("initial.", parameter);
      ASSERT_EQ(values.size(), static_cast<size_t>(parameter.count())) << parameter.name;
      std::copy(values.begin(), values.end(), gpt_.store.values_of(parameter.id).begin());
    }
  }

  GptInput input(size_t step) const {
    const auto rows = static_cast<size_t>(batch_ * config_.context);
    return {.tokens = tokens_.data() + step * rows,
            .targets = targets_.data() + step * rows,
            .batch = batch_,
            .sequence = config_.context,
            .gradient_scale = 1.0f / static_cast<float>(counted())};
  }
  // Returns how many targets of a step count: as many in each.
  int64_t counted() const {
    const int64_t all = std::ranges::count_if(targets_, [](int32_t target) { return target >= 0; });
    return all / std::ssize(losses_);
  }

  // The key's bias is not compared: its true gradient is zero, so ours is nothing but rounding.
  bool is_compared(const Parameter& parameter, size_t i) const {
    const bool has_key_bias = parameter.name.ends_with("attn.c_attn.bias") ||
                              parameter.name.ends_with("attention.self.qkv.bias");
    return !has_key_bias || i / static_cast<size_t>(config_.width) != 1;
  }

  static double largest_of(const std::vector<float>& values) {
    double largest = 0;
    for (const float value : values) largest = std::max<double>(largest, std::abs(value));
    return largest;
  }

  void expect_gradient(const Parameter& parameter, std::span<const float> ours) const {
    const std::vector<float> theirs = golden_.parameter("gradient.", parameter);
    ASSERT_EQ(theirs.size(), ours.size()) << parameter.name;
    const double limit = kDeviations * gradient_deviation_ * largest_of(theirs);
    for (size_t i = 0; i < theirs.size(); ++i) {
      if (!is_compared(parameter, i)) continue;
      EXPECT_NEAR(ours[i], theirs[i], limit) << "gradient." << parameter.name << " " << i;
    }
  }

  // Each weight has its own deviation, large for the few whose updates amplify rounding errors. All
  // weights of a tensor together must not deviate by more than one.
  void expect_final(const std::string& training, const Parameter& parameter,
                    std::span<const float> ours) const {
    const std::vector<float> theirs = golden_.parameter(training + "final.", parameter);
    const std::vector<float> deviations = golden_.parameter(training + "deviation.", parameter);
    ASSERT_EQ(theirs.size(), ours.size()) << parameter.name;
    ASSERT_EQ(deviations.size(), ours.size()) << parameter.name;
    const double rounding = kUnitRoundoff * largest_of(theirs);
    double squares = 0, expected_squares = 0;
    for (size_t i = 0; i < theirs.size(); ++i) {
      if (!is_compared(parameter, i)) continue;
      const double deviation = static_cast<double>(deviations[i]) + rounding;
      EXPECT_NEAR(ours[i], theirs[i], kDeviations * deviation)
          << training << "final." << parameter.name << " " << i;
      squares += std::pow(static_cast<double>(ours[i]) - static_cast<double>(theirs[i]), 2);
      expected_squares += deviation * deviation;
    }
    EXPECT_LE(squares, expected_squares) << training << "final." << parameter.name;
  }

  // A series of the file: the losses or norms of a training, with what the weights' deviation does
  // to them.
  struct Series {
    std::vector<float> values;
    std::vector<float> deviations;
  };
  Series series(const std::string& training, const std::string& what) const {
    return {golden_.tensor<float>(training + what),
            golden_.tensor<float>(training + "deviation." + what)};
  }
  void expect_near(double ours, const Series& theirs, size_t step) const {
    const auto expected = static_cast<double>(theirs.values[step]);
    EXPECT_NEAR(ours, expected,
                kDeviations *
                    (static_cast<double>(theirs.deviations[step]) + gradient_deviation_ * expected))
        << "step " << step;
  }

  // Trains with clipping and decay, and compares with a training of the file: "" or "sgd.".
  void expect_steps(const std::string& training, const optim::OptimizerOptions& options,
                    double learning_rate) {
    optim::Optimizer optimizer =
        optim::Optimizer::create(
            config_, gpt_.store.arena(),
            {.parameters = gpt_.store.values().data(), .gradients = gpt_.sink.gradients().data()},
            options, {}, kernels::cpu_ops())
            .value();
    const optim::GradientNorm norm = optim::GradientNorm::create(
        config_, gpt_.store.arena(), {.gradients = gpt_.sink.gradients().data()},
        kernels::cpu_ops());
    const Series losses = series(training, "losses"), norms = series(training, "norms");
    for (size_t step = 0; step < losses.values.size(); ++step) {
      gpt_.sink.begin_step();
      const double loss = gpt_.forward_backward(input(step));
      expect_near(loss / static_cast<double>(counted()), losses, step);
      kernels::SquareSum squares;
      norm.add_squares(gpt_.stream, &squares);
      const double length = std::sqrt(kernels::value_of(squares));
      float scale = 0;
      kernels::cpu_ops().clip_scale(
          gpt_.stream,
          {.squares = &squares, .scale = &scale, .clip_norm = golden_.number("clipNorm")});
      expect_near(length, norms, step);
      EXPECT_GT(length, golden_.number("clipNorm"));
      optimizer.step(gpt_.stream, {.learning_rate = learning_rate,
                                   .device_scale = &scale,
                                   .step = static_cast<int64_t>(step) + 1});
    }
    for (const Parameter& parameter : parameter_table(config_)) {
      expect_final(training, parameter, gpt_.store.values_of(parameter.id));
    }
  }
  optim::OptimizerOptions adamw() const {
    return {.beta1 = golden_.number("beta1"),
            .beta2 = golden_.number("beta2"),
            .epsilon = golden_.number("epsilon"),
            .weight_decay = golden_.number("weightDecay")};
  }

  const Golden golden_{GetParam()};
  const ModelConfig config_ = golden_.config();
  const std::vector<int32_t> tokens_ = golden_.tensor<int32_t>("tokens");
  const std::vector<int32_t> targets_ = golden_.tensor<int32_t>("targets");
  const std::vector<float> losses_ = golden_.tensor<float>("losses");
  const double gradient_deviation_ = golden_.number("gradientDeviation");
  const int64_t batch_ = static_cast<int64_t>(tokens_.size() / losses_.size()) / config_.context;
  TinyGpt gpt_{config_, {batch_, config_.context}};
};

TEST_P(GptAgainstPyTorch, HasItsLossAndAllItsGradients) {
  gpt_.sink.begin_step();
  const double loss = gpt_.forward_backward(input(0));
  expect_near(loss / static_cast<double>(counted()), series("", "losses"), 0);
  for (const Parameter& parameter : parameter_table(config_)) {
    expect_gradient(parameter, gpt_.sink.of(parameter.id));
  }
}

TEST_P(GptAgainstPyTorch, TakesItsStepsOfAdamWWithClippingAndDecay) {
  ASSERT_EQ(losses_.size(), golden_.is("llama") ? 20u : 10u);
  expect_steps("", adamw(), golden_.number("learningRate"));
}

TEST_P(GptAgainstPyTorch, TakesItsStepsOfSgd) {
  expect_steps("sgd.",
               {.kind = optim::OptimizerKind::kSgd,
                .momentum = golden_.number("sgd.momentum"),
                .nesterov = true,
                .weight_decay = golden_.number("sgd.weightDecay")},
               golden_.number("sgd.learningRate"));
}

TEST_P(GptAgainstPyTorch, TakesItsStepsOfAdagrad) {
  expect_steps("adagrad.",
               {.kind = optim::OptimizerKind::kAdagrad,
                .epsilon = golden_.number("adagrad.epsilon"),
                .weight_decay = golden_.number("adagrad.weightDecay")},
               golden_.number("adagrad.learningRate"));
}

TEST_P(GptAgainstPyTorch, TakesItsStepsOfMuon) {
  const double rate = golden_.number("muon.learningRate");
  optim::OptimizerOptions options = adamw();
  options.kind = optim::OptimizerKind::kMuon;
  options.muon = {.momentum = golden_.number("muon.matrixMomentum"),
                  .rate = golden_.number("muon.matrixLearningRate") / rate};
  expect_steps("muon.", options, rate);
}

INSTANTIATE_TEST_SUITE_P(Files, GptAgainstPyTorch, ::testing::ValuesIn(golden_paths()),
                         [](const auto& info) {
                           if (info.param.ends_with("bert.safetensors")) return "Bert";
                           return info.param.ends_with("llama.safetensors") ? "Llama" : "Gpt2";
                         });

}  // namespace
}  // namespace lockstep::model
