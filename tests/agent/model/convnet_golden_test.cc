// Compares convolutional networks with PyTorch. tests/golden/make_convnet_golden.py describes the
// file and the formula of parameters and images; golden.py derives the deviations. Reads the
// committed file, or the one that LOCKSTEP_GOLDEN_FILE names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "agent/optim/optimizer.h"
#include "tests/agent/model/tiny_mlp.h"
#include "tests/golden/golden_file.h"

namespace lockstep::model {
namespace {

using test::kDeviations;

std::string golden_path() {
  const char* fresh = std::getenv("LOCKSTEP_GOLDEN_FILE");
  return fresh != nullptr ? fresh : LOCKSTEP_SOURCE_DIR "/tests/golden/convnet.safetensors";
}

std::vector<float> formula(int64_t count, int64_t salt, double factor = 1, double offset = 0) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const auto bits =
        static_cast<uint32_t>(static_cast<uint64_t>(i + 1000003 * salt) * 2654435761u);
    const double value = static_cast<double>(bits >> 8) / (1 << 23) - 1;
    values.push_back(static_cast<float>(value * factor + offset));
  }
  return values;
}

struct Trained {
  const char* network;
  const char* optimizer;
};

class ConvnetAgainstPyTorch : public ::testing::TestWithParam<Trained> {
 protected:
  void SetUp() override {
    for (const Parameter& parameter : table_) {
      const bool is_scale = parameter.name.ends_with("running_var") ||
                            (parameter.rank == 1 && parameter.name.ends_with(".weight"));
      const double factor =
          parameter.rank == 2 ? 1 / std::sqrt(static_cast<double>(parameter.dims[1])) : 0.125;
      const std::vector<float> values =
          formula(parameter.count(), parameter.id, factor, is_scale ? 1 : 0);
      std::copy(values.begin(), values.end(), net_.store.values_of(parameter.id).begin());
    }
    images_ = formula(steps_ * rows_ * pixels(), 77);
    for (const float value : formula(steps_ * rows_, 78)) {
      labels_.push_back(static_cast<int32_t>((static_cast<double>(value) + 1) *
                                             static_cast<double>(config_.classes) / 2));
    }
  }

  ConvnetConfig config() const {
    ConvnetConfig config = convnet_preset(GetParam().network)->config;
    const bool is_lenet = config.kind == ConvnetKind::kLenet5;
    config.height = config.width = is_lenet ? 12 : 8;
    config.classes = file_.integer("classes");
    return config;
  }
  int64_t pixels() const { return config_.height * config_.width * config_.channels; }
  std::vector<float> of(const std::string& name) const {
    return file_.tensor<float>(std::string(GetParam().network) + "." + GetParam().optimizer + "." +
                               name);
  }
  double number(const std::string& name) const {
    return file_.number(std::string(GetParam().optimizer) + "." + name);
  }
  DeviceBatch batch(int64_t step) const {
    DeviceBatch batch{.rows = rows_, .counted = rows_};
    batch.tensors[0] = images_.data() + step * rows_ * pixels();
    batch.tensors[1] = labels_.data() + step * rows_;
    return batch;
  }
  double mean_loss(int64_t step) {
    const auto count = static_cast<double>(rows_);
    return net_.forward_backward(batch(step), count) / count;
  }
  // The elements of a parameter that the file has.
  std::vector<float> sampled(std::span<const float> values) const {
    const int64_t stride = std::max<int64_t>(1, std::ssize(values) / file_.integer("sampled"));
    std::vector<float> chosen;
    for (int64_t i = 0; i < std::ssize(values); i += stride) {
      chosen.push_back(values[static_cast<size_t>(i)]);
    }
    return chosen;
  }
  static double largest_of(std::span<const float> values) {
    double largest = 0;
    for (const float value : values) largest = std::max<double>(largest, std::abs(value));
    return largest;
  }

  const test::GoldenFile file_{golden_path()};
  const ConvnetConfig config_ = config();
  const std::vector<Parameter> table_ = parameter_table(config_);
  const int64_t rows_ = file_.integer("batch");
  const int64_t steps_ = file_.integer(std::string(GetParam().network) + ".steps");
  const double gradient_deviation_ = static_cast<double>(of("gradientDeviation")[0]);
  std::vector<float> images_;
  std::vector<int32_t> labels_;
  test::TinyMlp net_{config_, rows_};
};

// Through a resnet20's 19 normalisations rounding errors grow: PyTorch's own gradients in fp32 are
// off by up to 3.8e-5 of the largest one. A lenet5 has no normalisations.
constexpr double kOfNormalisations = 2;

TEST_P(ConvnetAgainstPyTorch, HasItsLossAndAllItsGradients) {
  net_.sink.begin_step();
  const auto first = static_cast<double>(of("losses")[0]);
  EXPECT_NEAR(mean_loss(0), first, kDeviations * gradient_deviation_ * first);
  for (const Parameter& parameter : table_) {
    if (parameter.is_statistic) continue;
    const std::vector<float> theirs = of("gradient." + parameter.name);
    const std::span<const float> all = net_.sink.of(parameter.id);
    const std::vector<float> ours = sampled(all);
    ASSERT_EQ(theirs.size(), ours.size()) << parameter.name;
    const double growth = config_.kind == ConvnetKind::kLenet5 ? 1 : kOfNormalisations;
    const double limit = growth * kDeviations * gradient_deviation_ * largest_of(all);
    EXPECT_GT(largest_of(theirs), 0) << parameter.name;
    for (size_t i = 0; i < theirs.size(); ++i) {
      EXPECT_NEAR(ours[i], theirs[i], limit) << parameter.name << " " << i;
    }
  }
}

TEST_P(ConvnetAgainstPyTorch, TakesItsStepsAndEvaluatesAsItDoes) {
  optim::Optimizer optimizer =
      optim::Optimizer::create(
          config_, net_.store.arena(),
          {.parameters = net_.store.values().data(), .gradients = net_.sink.gradients().data()},
          {.kind = optim::parse_optimizer(GetParam().optimizer).value(),
           .beta1 = file_.number("beta1"),
           .beta2 = file_.number("beta2"),
           .epsilon = file_.number("epsilon"),
           .momentum = file_.number("momentum"),
           .nesterov = true,
           .weight_decay = number("weightDecay"),
           .muon = {.momentum = file_.number("matrixMomentum"),
                    .rate = file_.number("matrixLearningRate") / number("learningRate")}},
          {}, kernels::cpu_ops())
          .value();
  const std::vector<float> losses = of("losses"), deviations = of("deviation.losses");
  for (int64_t step = 0; step < steps_; ++step) {
    const auto at = static_cast<size_t>(step);
    net_.sink.begin_step();
    const double limit =
        static_cast<double>(deviations[at]) + gradient_deviation_ * static_cast<double>(losses[at]);
    EXPECT_NEAR(mean_loss(step), losses[at], kDeviations * limit) << "step " << step;
    optimizer.step(net_.stream, {.learning_rate = number("learningRate"), .step = step + 1});
  }
  for (const Parameter& parameter : table_) {
    const std::vector<float> theirs = of("final." + parameter.name);
    const std::vector<float> limits = of("deviation." + parameter.name);
    const std::vector<float> ours = sampled(net_.store.values_of(parameter.id));
    const double rounding =
        test::kUnitRoundoff * largest_of(theirs) * std::sqrt(static_cast<double>(steps_) * 2);
    // A tenth of what the forward pass computes.
    const double of_forward =
        parameter.is_statistic ? 0.1 * gradient_deviation_ * largest_of(theirs) : 0;
    // The root mean square of six trials, of which single elements may be small by chance.
    const double least = largest_of(limits) / 4;
    for (size_t i = 0; i < theirs.size(); ++i) {
      const double deviation = std::max(static_cast<double>(limits[i]), least);
      EXPECT_NEAR(ours[i], theirs[i], kDeviations * (deviation + rounding + of_forward))
          << parameter.name << " " << i;
    }
  }
  // With the running statistics.
  const std::vector<float> logits = of("logits");
  double expected = 0;
  const auto classes = static_cast<size_t>(config_.classes);
  for (size_t row = 0; row < static_cast<size_t>(rows_); ++row) {
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) {
      sum += std::exp(static_cast<double>(logits[row * classes + c]));
    }
    expected += std::log(sum) -
                static_cast<double>(logits[row * classes + static_cast<size_t>(labels_[row])]);
  }
  const double limit = largest_of(of("deviation.logits")) + gradient_deviation_ * expected;
  EXPECT_NEAR(net_.loss(batch(0)), expected, kDeviations * limit * static_cast<double>(rows_));
}

INSTANTIATE_TEST_SUITE_P(Networks, ConvnetAgainstPyTorch,
                         ::testing::Values(Trained{"lenet5", "adamw"}, Trained{"lenet5", "sgd"},
                                           Trained{"lenet5", "adagrad"}, Trained{"lenet5", "muon"},
                                           Trained{"resnet20", "adamw"}, Trained{"resnet20", "sgd"},
                                           Trained{"resnet20", "adagrad"},
                                           Trained{"resnet20", "muon"}),
                         [](const auto& info) {
                           return std::string(info.param.network) + "_" + info.param.optimizer;
                         });

}  // namespace
}  // namespace lockstep::model
