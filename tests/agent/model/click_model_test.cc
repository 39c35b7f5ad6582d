#include "agent/model/clicks/click_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/base/random.h"

namespace lockstep::model {
namespace {

constexpr size_t kKeys = 5;
constexpr size_t kFactors = 3;

// Three rows; the second one has no features, the third one has a key twice.
struct Example {
  std::vector<float> labels = {1, 0, 0};
  std::vector<uint32_t> row_begin = {0, 3, 3, 6};
  std::vector<uint32_t> slots = {0, 2, 4, 1, 2, 1};
  std::vector<float> values = {1, 0.5f, -2, 1, 3, 0.25f};
  float bias = 0.3f;
  std::vector<float> weights = std::vector<float>(kKeys);
  std::vector<float> factors = std::vector<float>(kKeys * kFactors);

  Example() {
    Random random(5);
    for (float& weight : weights) weight = random.normal();
    for (float& factor : factors) factor = random.normal() * 0.5f;
  }
  ClickBatch batch() const {
    return {.labels = labels, .row_begin = row_begin, .slots = slots, .values = values};
  }
  ClickParameters parameters() const {
    return {.bias = bias, .weights = weights, .factors = factors};
  }
};

std::vector<double> logits_of(const Example& example) {
  ClickModel model(example.factors.empty() ? 0 : kFactors);
  std::vector<double> logits(3);
  model.forward(example.batch(), example.parameters(), logits);
  return logits;
}

// The formula with its pairs of features, as Rendle writes it.
double by_pairs(const Example& e, size_t row) {
  double logit = e.bias;
  for (uint32_t i = e.row_begin[row]; i < e.row_begin[row + 1]; ++i) {
    logit += static_cast<double>(e.weights[e.slots[i]]) * e.values[i];
    if (e.factors.empty()) continue;
    for (uint32_t j = i + 1; j < e.row_begin[row + 1]; ++j) {
      double product = 0;
      for (size_t f = 0; f < kFactors; ++f) {
        product += static_cast<double>(e.factors[e.slots[i] * kFactors + f]) *
                   e.factors[e.slots[j] * kFactors + f];
      }
      logit += product * e.values[i] * e.values[j];
    }
  }
  return logit;
}

TEST(ClickModel, SumsOverAllPairsOfFeatures) {
  Example example;
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_NEAR(logits_of(example)[row], by_pairs(example, row), 1e-12) << row;
  }
  example.factors.clear();
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_NEAR(logits_of(example)[row], by_pairs(example, row), 1e-12) << row;
  }
}

TEST(ClickModel, HasTheGradientOfFiniteDifferences) {
  for (const bool is_machine : {true, false}) {
    Example example;
    if (!is_machine) example.factors.clear();
    ClickModel model(is_machine ? kFactors : 0);
    std::vector<double> logits(3);
    model.forward(example.batch(), example.parameters(), logits);
    std::vector<float> weight_gradients(kKeys);
    std::vector<float> factor_gradients(example.factors.size());
    ClickGradients gradients{.weights = weight_gradients, .factors = factor_gradients};
    model.backward(example.batch(), example.parameters(), logits, 2, gradients);
    const auto expect_gradient = [&](float& parameter, double gradient) {
      constexpr float kStep = 1.0f / 256;
      const float before = parameter;
      parameter = before + kStep;
      const double above = log_loss_sum(example.labels, logits_of(example));
      const float high = parameter;
      parameter = before - kStep;
      const double below = log_loss_sum(example.labels, logits_of(example));
      const double difference = static_cast<double>(high) - parameter;
      parameter = before;
      EXPECT_NEAR(gradient, 2 * (above - below) / difference, 2e-3);
    };
    expect_gradient(example.bias, gradients.bias);
    for (size_t i = 0; i < kKeys; ++i) expect_gradient(example.weights[i], weight_gradients[i]);
    for (size_t i = 0; i < example.factors.size(); ++i) {
      expect_gradient(example.factors[i], factor_gradients[i]);
    }
    EXPECT_EQ(weight_gradients[3], 0) << "no row has key 3";
  }
}

TEST(ClickModel, ComputesTheLogLossOfLargeLogits) {
  const std::vector<float> labels = {1, 0, 1, 0};
  EXPECT_NEAR(log_loss_sum(labels, std::vector<double>{0, 0, 0, 0}), 4 * std::log(2.0), 1e-12);
  EXPECT_NEAR(log_loss_sum(labels, std::vector<double>{800, -800, -1, 1}),
              2 * std::log1p(std::exp(1.0)), 1e-12);
  EXPECT_EQ(log_loss_sum(labels, std::vector<double>{-1e4, -1, 1e4, -1e4}) > 1e4, true);
}

TEST(ClickModel, ComputesTheAreaUnderTheCurve) {
  const std::vector<float> labels = {0, 0, 1, 1, 0, 1};
  EXPECT_DOUBLE_EQ(auc(labels, std::vector<double>{.1, .4, .35, .8, .4, .4}), 6.0 / 9);
  EXPECT_DOUBLE_EQ(auc(labels, std::vector<double>{0, 0, 1, 1, 0, 1}), 1);
  EXPECT_DOUBLE_EQ(auc(labels, std::vector<double>{1, 1, 0, 0, 1, 0}), 0);
  EXPECT_DOUBLE_EQ(auc(labels, std::vector<double>{2, 2, 2, 2, 2, 2}), 0.5);
  EXPECT_DOUBLE_EQ(auc(std::vector<float>{1, 1}, std::vector<double>{2, 3}), 0.5);
}

}  // namespace
}  // namespace lockstep::model
