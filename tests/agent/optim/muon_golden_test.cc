// Muon against PyTorch (tests/golden/make_muon_golden.py describes the file). Reads the committed
// file, or the one that LOCKSTEP_GOLDEN_FILE names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "agent/optim/newton_schulz.h"
#include "agent/optim/optimizer.h"
#include "tests/golden/golden_file.h"

namespace lockstep::optim {
namespace {

// The first iteration multiplies small singular values by 3.4445, as do the next ones: rounding
// errors of fp32 grow up to 3.4445^5 times.
const double kGrowth = std::pow(3.4445, 5);

const MlpConfig kMlp{.inputs = 3, .hidden = {6, 5, 7}, .outputs = 2};

constexpr ModelConfig transformer(Family family) {
  ModelConfig config{.layers = 1, .width = 4, .heads = 2, .context = 2, .vocabulary = 3};
  config.family = family;
  if (family != Family::kGpt2) config.hidden = 6;
  if (family == Family::kLlama) {
    config.kv_heads = 1;
    config.tied = false;
  }
  return config;
}

test::GoldenFile golden_file() {
  const char* fresh = std::getenv("LOCKSTEP_GOLDEN_FILE");
  return test::GoldenFile(fresh != nullptr ? fresh
                                           : LOCKSTEP_SOURCE_DIR "/tests/golden/muon.safetensors");
}

struct Case {
  const char* name;
  ModelDesign design;
};

class MuonAgainstPyTorch : public ::testing::TestWithParam<Case> {
 protected:
  std::vector<float> of(const std::string& kind, const ArenaEntry& entry) const {
    const std::string& name = table_[static_cast<size_t>(entry.id)].name;
    return file_.tensor<float>(GetParam().name + ("." + kind + "." + name));
  }
  // Copies the tensors of a kind, or those of one step, to an array of the arena's layout.
  void fill(const std::string& kind, int64_t step, std::vector<float>& to) const {
    for (const ArenaEntry& entry : arena_.entries) {
      const std::vector<float> values = of(kind, entry);
      ASSERT_GE(std::ssize(values), (step + 1) * entry.count);
      std::copy_n(values.begin() + step * entry.count, entry.count, to.begin() + entry.offset);
    }
  }
  void expect_near(const float* ours, const std::string& kind, double limit) const {
    for (const ArenaEntry& entry : arena_.entries) {
      const std::vector<float> theirs = of(kind, entry);
      ASSERT_EQ(std::ssize(theirs), entry.count);
      for (int64_t i = 0; i < entry.count; ++i) {
        const auto expected = static_cast<double>(theirs[static_cast<size_t>(i)]);
        ASSERT_NEAR(ours[entry.offset + i], expected, limit * std::max(1.0, std::abs(expected)))
            << kind << " of " << table_[static_cast<size_t>(entry.id)].name << " " << i;
      }
    }
  }
  OptimizerOptions options() const {
    return {.kind = OptimizerKind::kMuon,
            .beta1 = file_.number("beta1"),
            .beta2 = file_.number("beta2"),
            .epsilon = file_.number("epsilon"),
            .weight_decay = file_.number("weightDecay"),
            .muon = {.momentum = file_.number("matrixMomentum"),
                     .rate = file_.number("matrixLearningRate") / file_.number("learningRate")}};
  }

  const test::GoldenFile file_ = golden_file();
  const std::vector<Parameter> table_ = parameter_table(GetParam().design);
  const ParameterArena arena_ = parameter_arena(GetParam().design, whole_model(GetParam().design));
};

TEST_P(MuonAgainstPyTorch, TakesItsSteps) {
  const int64_t steps = file_.integer("steps");
  std::vector<float> parameters(static_cast<size_t>(arena_.count));
  std::vector<float> gradients(parameters.size());
  ASSERT_NO_FATAL_FAILURE(fill("initial", 0, parameters));
  Optimizer optimizer =
      Optimizer::create(GetParam().design, arena_,
                        {.parameters = parameters.data(), .gradients = gradients.data()}, options(),
                        {}, kernels::cpu_ops())
          .value();
  kernels::Stream stream;
  for (int64_t step = 0; step < steps; ++step) {
    ASSERT_NO_FATAL_FAILURE(fill("gradients", step, gradients));
    optimizer.step(stream, {.learning_rate = file_.number("learningRate"), .step = step + 1});
  }
  const double update = test::kUnitRoundoff * kGrowth * file_.number("matrixLearningRate");
  expect_near(parameters.data(), "final", 2e-6 + test::kDeviations * update);
  for (const OptimizerState& state : optimizer.states()) {
    expect_near(state.values, state.name, 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MuonAgainstPyTorch,
                         ::testing::Values(Case{"gpt2", transformer(Family::kGpt2)},
                                           Case{"llama", transformer(Family::kLlama)},
                                           Case{"bert", transformer(Family::kBert)},
                                           Case{"mlp", kMlp}),
                         [](const auto& info) { return std::string(info.param.name); });

class NewtonSchulzAgainstPyTorch
    : public ::testing::TestWithParam<std::pair<const char*, MatrixShape>> {};

TEST_P(NewtonSchulzAgainstPyTorch, OrthogonalisesAMatrix) {
  const test::GoldenFile file = golden_file();
  const auto& [name, shape] = GetParam();
  std::vector<float> x = file.tensor<float>(std::string(name) + ".input");
  const std::vector<float> theirs = file.tensor<float>(std::string(name) + ".output");
  ASSERT_EQ(std::ssize(x), shape.count());
  std::vector<float> ours(x.size());
  std::vector<float> gram(static_cast<size_t>(shape.shorter() * shape.shorter()));
  std::vector<float> polynomial(gram.size());
  std::vector<char> workspace(
      newton_schulz_workspace(shape, kernels::Precision::kF32, kernels::DeviceType::kCpu));
  kernels::SquareSum squares;
  float factor = 0;
  kernels::Stream stream;
  newton_schulz(kernels::cpu_ops(), stream,
                {.x = x.data(),
                 .out = ours.data(),
                 .shape = shape,
                 .gram = gram.data(),
                 .polynomial = polynomial.data(),
                 .squares = &squares,
                 .factor = &factor,
                 .workspace = {workspace.data(), workspace.size()}});
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i], theirs[i], test::kDeviations * test::kUnitRoundoff * kGrowth) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, NewtonSchulzAgainstPyTorch,
                         ::testing::Values(std::pair("wide", MatrixShape{24, 40}),
                                           std::pair("tall", MatrixShape{40, 24}),
                                           std::pair("square", MatrixShape{16, 16}),
                                           std::pair("row", MatrixShape{1, 9}),
                                           std::pair("column", MatrixShape{9, 1})),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace lockstep::optim
