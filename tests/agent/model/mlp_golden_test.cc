// Compares MLPs with PyTorch. tests/golden/make_mlp_golden.py describes the file, golden.py derives
// the deviations. Reads the committed file, or the one that LOCKSTEP_GOLDEN_FILE names.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>

#include "agent/optim/optimizer.h"
#include "tests/agent/model/tiny_mlp.h"
#include "tests/golden/golden_file.h"

namespace lockstep::model {
namespace {

using test::kDeviations;

std::string golden_path() {
  const char* fresh = std::getenv("LOCKSTEP_GOLDEN_FILE");
  return fresh != nullptr ? fresh : LOCKSTEP_SOURCE_DIR "/tests/golden/mlp.safetensors";
}

struct Trained {
  MlpActivation activation;
  MlpTask task;
  const char* optimizer;
};

class MlpAgainstPyTorch : public ::testing::TestWithParam<Trained> {
 protected:
  void SetUp() override {
    for (const Parameter& parameter : table_) {
      const std::vector<float> values = of("initial." + parameter.name);
      ASSERT_EQ(values.size(), static_cast<size_t>(parameter.count())) << parameter.name;
      std::copy(values.begin(), values.end(), mlp_.store.values_of(parameter.id).begin());
    }
  }

  bool classifies() const { return GetParam().task == MlpTask::kClassification; }
  MlpConfig config() const {
    MlpConfig config{.inputs = file_.integer("inputs"),
                     .outputs = file_.integer(classifies() ? "classes" : "values"),
                     .activation = GetParam().activation,
                     .task = GetParam().task};
    std::istringstream widths(file_.metadata("hidden"));
    for (std::string width; std::getline(widths, width, ',');) {
      config.hidden.push_back(std::stoll(width));
    }
    return config;
  }
  // A tensor of this model's training.
  std::vector<float> of(const std::string& name) const {
    return file_.tensor<float>(std::string(mlp_activation_name(GetParam().activation)) + "." +
                               std::string(mlp_task_name(GetParam().task)) + "." +
                               GetParam().optimizer + "." + name);
  }
  int64_t terms() const { return classifies() ? rows_ : rows_ * config_.outputs; }
  DeviceBatch batch(int64_t step) const {
    DeviceBatch batch{.rows = rows_, .counted = terms()};
    batch.tensors[0] = features_.data() + step * rows_ * config_.inputs;
    batch.tensors[1] = classifies() ? static_cast<const void*>(labels_.data() + step * rows_)
                                    : static_cast<const void*>(values_.data() + step * terms());
    return batch;
  }
  double mean_loss(int64_t step) {
    const auto count = static_cast<double>(terms());
    return mlp_.forward_backward(batch(step), count) / count;
  }
  double largest_of(const std::vector<float>& values) const {
    double largest = 0;
    for (const float value : values) largest = std::max<double>(largest, std::abs(value));
    return largest;
  }

  const test::GoldenFile file_{golden_path()};
  const MlpConfig config_ = config();
  const std::vector<Parameter> table_ = parameter_table(config_);
  const std::vector<float> features_ = file_.tensor<float>("features");
  const std::vector<int32_t> labels_ = file_.tensor<int32_t>("labels");
  const std::vector<float> values_ = file_.tensor<float>("values");
  const int64_t rows_ = file_.integer("batch");
  const double gradient_deviation_ = file_.number("gradientDeviation");
  test::TinyMlp mlp_{config_, rows_};
};

TEST_P(MlpAgainstPyTorch, HasItsLossAndAllItsGradients) {
  mlp_.sink.begin_step();
  const std::vector<float> losses = of("losses");
  EXPECT_NEAR(mean_loss(0), losses[0],
              kDeviations * gradient_deviation_ * static_cast<double>(losses[0]));
  for (const Parameter& parameter : table_) {
    const std::vector<float> theirs = of("gradient." + parameter.name);
    const std::span<const float> ours = mlp_.sink.of(parameter.id);
    ASSERT_EQ(theirs.size(), ours.size()) << parameter.name;
    const double limit = kDeviations * gradient_deviation_ * largest_of(theirs);
    EXPECT_GT(largest_of(theirs), 0) << parameter.name;
    for (size_t i = 0; i < theirs.size(); ++i) {
      EXPECT_NEAR(ours[i], theirs[i], limit) << parameter.name << " " << i;
    }
  }
}

TEST_P(MlpAgainstPyTorch, TakesTheStepsOfItsOptimizers) {
  optim::Optimizer optimizer =
      optim::Optimizer::create(
          config_, mlp_.store.arena(),
          {.parameters = mlp_.store.values().data(), .gradients = mlp_.sink.gradients().data()},
          {.kind = optim::parse_optimizer(GetParam().optimizer).value(),
           .beta1 = file_.number("beta1"),
           .beta2 = file_.number("beta2"),
           .epsilon = file_.number("epsilon"),
           .momentum = file_.number("momentum"),
           .nesterov = true,
           .weight_decay = file_.number("weightDecay"),
           .muon = {.momentum = file_.number("matrixMomentum"),
                    .rate = file_.number("matrixLearningRate") / file_.number("learningRate")}},
          {}, kernels::cpu_ops())
          .value();
  const std::vector<float> losses = of("losses"), deviations = of("deviation.losses");
  ASSERT_EQ(losses.size(), 10u);
  for (int64_t step = 0; step < std::ssize(losses); ++step) {
    const auto at = static_cast<size_t>(step);
    mlp_.sink.begin_step();
    const double limit =
        static_cast<double>(deviations[at]) + gradient_deviation_ * static_cast<double>(losses[at]);
    EXPECT_NEAR(mean_loss(step), losses[at], kDeviations * limit) << "step " << step;
    optimizer.step(mlp_.stream, {.learning_rate = file_.number("learningRate"), .step = step + 1});
  }
  for (const Parameter& parameter : table_) {
    const std::vector<float> theirs = of("final." + parameter.name);
    const std::vector<float> limits = of("deviation." + parameter.name);
    const std::span<const float> ours = mlp_.store.values_of(parameter.id);
    // An update rounds twice where the simulation behind the limits rounds once: the decayed weight
    // and the new one. The errors of the steps are independent.
    const double rounding =
        test::kUnitRoundoff * largest_of(theirs) * std::sqrt(static_cast<double>(losses.size()));
    for (size_t i = 0; i < theirs.size(); ++i) {
      EXPECT_NEAR(ours[i], theirs[i], kDeviations * (static_cast<double>(limits[i]) + rounding))
          << parameter.name << " " << i;
    }
  }
}

std::vector<Trained> all_trained() {
  std::vector<Trained> all;
  for (const auto activation : {MlpActivation::kRelu, MlpActivation::kGelu, MlpActivation::kTanh}) {
    for (const auto task : {MlpTask::kClassification, MlpTask::kRegression}) {
      for (const char* optimizer : {"adamw", "sgd", "adagrad", "muon"}) {
        all.push_back({activation, task, optimizer});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, MlpAgainstPyTorch, ::testing::ValuesIn(all_trained()),
                         [](const auto& info) {
                           return std::string(mlp_activation_name(info.param.activation)) + "_" +
                                  std::string(mlp_task_name(info.param.task)) + "_" +
                                  info.param.optimizer;
                         });

}  // namespace
}  // namespace lockstep::model
