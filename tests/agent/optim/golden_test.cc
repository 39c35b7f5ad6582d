// Ten steps of each optimizer against PyTorch's (tests/golden/make_optimizers_golden.py).
#include "tests/golden/golden_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "agent/optim/optimizer.h"

namespace lockstep::optim {
namespace {

constexpr size_t kSteps = 10;
const ModelConfig kTiny{1, 4, 1, 2, 3};

std::string golden_path() {
  const char* fresh = std::getenv("LOCKSTEP_GOLDEN_FILE");
  return fresh != nullptr ? fresh : LOCKSTEP_SOURCE_DIR "/tests/golden/optimizers.safetensors";
}

struct Case {
  const char* name;
  OptimizerKind kind;
};

class AgainstPyTorch : public ::testing::TestWithParam<Case> {
 protected:
  double setting(const char* name) const {
    return golden_.number(std::string(GetParam().name) + "." + name);
  }
  OptimizerOptions options() const {
    return {.kind = GetParam().kind,
            .beta1 = setting("beta1"),
            .beta2 = setting("beta2"),
            .epsilon = setting("eps"),
            .momentum = setting("momentum"),
            .nesterov = setting("nesterov") == 1,
            .weight_decay = golden_.number("weight_decay")};
  }

  // Calls body(element of the arena, element of the file). The file has values for parameters that
  // decay and as many for those that do not, which the model's parameters repeat.
  template <class Body>
  void for_elements(Body body) const {
    const std::vector<Parameter> table = parameter_table(kTiny);
    const auto half = static_cast<int64_t>(initial_.size() / 2);
    for (const ArenaEntry& entry : arena_.entries) {
      const int64_t begin = table[static_cast<size_t>(entry.id)].weight_decay ? 0 : half;
      for (int64_t i = 0; i < entry.count; ++i) {
        body(static_cast<size_t>(entry.offset + i), static_cast<size_t>(begin + i % half));
      }
    }
  }
  void expect_near(const float* ours, const std::string& name) const {
    const std::vector<float> theirs = golden_.tensor<float>(GetParam().name + ("." + name));
    for_elements([&](size_t at, size_t from) {
      const double limit = 2e-6 * std::max(1.0, std::abs(static_cast<double>(theirs[from])));
      ASSERT_NEAR(ours[at], theirs[from], limit) << name << " " << from;
    });
  }

  const test::GoldenFile golden_{golden_path()};
  const std::vector<float> initial_ = golden_.tensor<float>("initial");
  const ParameterArena arena_ = parameter_arena(kTiny, whole_model(kTiny));
};

TEST_P(AgainstPyTorch, TakesItsSteps) {
  const std::vector<float> drawn = golden_.tensor<float>("gradients");
  ASSERT_EQ(drawn.size(), kSteps * initial_.size());
  std::vector<float> parameters(static_cast<size_t>(arena_.count));
  std::vector<float> gradients(parameters.size());
  for_elements([&](size_t at, size_t from) { parameters[at] = initial_[from]; });
  Optimizer optimizer =
      Optimizer::create(kTiny, arena_,
                        {.parameters = parameters.data(), .gradients = gradients.data()}, options(),
                        {}, kernels::cpu_ops())
          .value();
  kernels::Stream stream;
  for (size_t step = 0; step < kSteps; ++step) {
    const float* of_step = drawn.data() + step * initial_.size();
    for_elements([&](size_t at, size_t from) { gradients[at] = of_step[from]; });
    optimizer.step(stream,
                   {.learning_rate = setting("lr"), .step = static_cast<int64_t>(step) + 1});
  }
  expect_near(parameters.data(), "parameters");
  for (const OptimizerState& state : optimizer.states()) expect_near(state.values, state.name);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, AgainstPyTorch,
                         ::testing::Values(Case{"adamw", OptimizerKind::kAdamW},
                                           Case{"sgd", OptimizerKind::kSgd},
                                           Case{"sgd_momentum", OptimizerKind::kSgd},
                                           Case{"sgd_nesterov", OptimizerKind::kSgd},
                                           Case{"adagrad", OptimizerKind::kAdagrad}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep::optim
