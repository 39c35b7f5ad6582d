#include "agent/model/clicks/click_layers.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::model {
namespace {

constexpr int64_t kColumns = 3;
constexpr int64_t kFactors = 2;
constexpr int64_t kHidden[] = {4, 3};
const std::vector<std::string> kTensors = {"hidden.0.weight", "hidden.0.bias", "hidden.1.weight",
                                           "hidden.1.bias", "hidden.2.weight"};

// The numbers that tests/golden/make_deep_clicks_golden.py wrote, by name.
struct Golden {
  std::map<std::string, std::vector<double>> numbers;
  std::map<std::string, std::vector<float>> floats;
  std::vector<uint32_t> row_begin, slots, columns;

  Golden() {
    std::ifstream in(LOCKSTEP_SOURCE_DIR "/tests/golden/deep_clicks.txt");
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string name;
      words >> name;
      for (double number = 0; words >> number;) numbers[name].push_back(number);
      floats[name].assign(numbers[name].begin(), numbers[name].end());
    }
    row_begin = whole("row_begin");
    slots = whole("slots");
    columns = whole("columns");
  }
  std::vector<uint32_t> whole(const std::string& name) const {
    const std::vector<double>& from = numbers.at(name);
    return {from.begin(), from.end()};
  }
  ClickBatch batch() const {
    return {.labels = floats.at("labels"),
            .row_begin = row_begin,
            .slots = slots,
            .values = floats.at("values"),
            .columns = columns};
  }
  ClickParameters parameters() const {
    return {.bias = floats.at("bias")[0],
            .weights = floats.at("weights"),
            .factors = floats.at("factors")};
  }
  std::vector<std::span<const float>> tensors() const {
    std::vector<std::span<const float>> spans;
    for (const std::string& name : kTensors) spans.emplace_back(floats.at(name));
    return spans;
  }
};

// Results of a model with hidden layers.
struct Computed {
  std::vector<double> logits;
  std::map<std::string, std::vector<float>> gradients;
};

Computed compute(const Golden& golden, bool has_pairs, double scale) {
  ClickModel model(has_pairs ? kFactors : 0);
  ClickLayers layers(kColumns, kFactors, kHidden);
  Computed computed{.logits = std::vector<double>(4)};
  std::map<std::string, std::vector<float>>& to = computed.gradients;
  for (const auto& name : kTensors) to[name].resize(golden.floats.at(name).size());
  to["weights"].resize(golden.floats.at("weights").size());
  to["factors"].resize(golden.floats.at("factors").size());
  std::vector<std::span<float>> of_tensors;
  for (const auto& name : kTensors) of_tensors.emplace_back(to[name]);
  model.forward(golden.batch(), golden.parameters(), computed.logits);
  layers.forward(golden.batch(), golden.floats.at("factors"), golden.tensors(), computed.logits);
  ClickGradients gradients{.weights = to["weights"], .factors = to["factors"]};
  model.backward(golden.batch(), golden.parameters(), computed.logits, scale, gradients);
  layers.backward(golden.batch(), golden.tensors(), computed.logits, scale, to["factors"],
                  of_tensors);
  to["bias"] = {static_cast<float>(gradients.bias)};
  return computed;
}

TEST(ClickLayers, HaveATensorForEachWeightAndBias) {
  const ClickLayers layers(kColumns, kFactors, kHidden);
  const Golden golden;
  ASSERT_EQ(layers.tensors().size(), kTensors.size());
  for (size_t i = 0; i < kTensors.size(); ++i) {
    EXPECT_EQ(layers.tensors()[i].count(), golden.floats.at(kTensors[i]).size()) << i;
  }
  EXPECT_EQ(layers.tensors()[3].fan_in, 4);
}

TEST(ClickLayers, AgreeWithPyTorchOnWideAndDeepModelsAndDeepFms) {
  const Golden golden;
  for (const std::string model : {"wideAndDeep", "deepFactorizationMachine"}) {
    SCOPED_TRACE(model);
    const Computed computed = compute(golden, model != "wideAndDeep", 1);
    const std::vector<double>& logits = golden.numbers.at(model + ".logits");
    ASSERT_EQ(logits.size(), 4u);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(computed.logits[i], logits[i], 1e-5) << i;
    for (const auto& [name, gradient] : computed.gradients) {
      const std::vector<double>& expected = golden.numbers.at(model + "." + name);
      ASSERT_EQ(gradient.size(), expected.size()) << name;
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(gradient[i], expected[i], 1e-5) << name << " " << i;
      }
    }
  }
}

TEST(ClickLayers, HaveTheGradientOfFiniteDifferences) {
  for (const bool has_pairs : {false, true}) {
    Golden golden;
    const auto loss = [&] {
      const Computed computed = compute(golden, has_pairs, 1);
      return log_loss_sum(golden.floats.at("labels"), computed.logits);
    };
    const Computed computed = compute(golden, has_pairs, 3);
    for (const auto& [name, gradient] : computed.gradients) {
      std::vector<float>& parameters = golden.floats.at(name);
      for (size_t i = 0; i < gradient.size(); ++i) {
        constexpr float kStep = 1.0f / 1024;
        const float before = parameters[i];
        parameters[i] = before + kStep;
        const double above = loss();
        parameters[i] = before - kStep;
        const double below = loss();
        parameters[i] = before;
        EXPECT_NEAR(gradient[i], 3 * (above - below) / (2 * kStep), 5e-3) << name << " " << i;
      }
    }
  }
}

TEST(ClickLayers, TakeABatchWithoutRows) {
  ClickLayers layers(kColumns, kFactors, kHidden);
  const Golden golden;
  const std::vector<uint32_t> row_begin = {0};
  const ClickBatch none{.row_begin = row_begin};
  std::vector<float> factor_gradients = {7, 8};
  layers.forward(none, {}, golden.tensors(), {});
  layers.backward(none, golden.tensors(), {}, 1, factor_gradients, {});
  EXPECT_EQ(factor_gradients, (std::vector<float>{7, 8}));
}

}  // namespace
}  // namespace lockstep::model
