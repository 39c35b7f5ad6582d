#include "common/layout/mlp_config.h"

#include <array>
#include <utility>

#include "common/base/check.h"

namespace lockstep {
namespace {

template <class T, size_t kSize>
using Names = std::array<std::pair<std::string_view, T>, kSize>;

constexpr Names<MlpActivation, 3> kActivations{{{"relu", MlpActivation::kRelu},
                                                {"gelu", MlpActivation::kGelu},
                                                {"tanh", MlpActivation::kTanh}}};
constexpr Names<MlpTask, 2> kTasks{
    {{"classification", MlpTask::kClassification}, {"regression", MlpTask::kRegression}}};

constexpr int64_t kClassesMin = 2;

template <class T, size_t kSize>
std::string_view name_of(const Names<T, kSize>& names, T value) {
  for (const auto& [name, known] : names) {
    if (known == value) return name;
  }
  return "";
}

template <class T, size_t kSize>
Result<T> from_name(const Names<T, kSize>& names, std::string_view what, std::string_view name) {
  std::string expected;
  for (const auto& [known, value] : names) {
    if (known == name) return value;
    if (!expected.empty()) expected += ", ";
    expected += known;
  }
  return not_found("[" + std::string(what) + "] expected one of " + expected + ", got \"" +
                   std::string(name) + "\"");
}

}  // namespace

std::string_view mlp_activation_name(MlpActivation activation) {
  return name_of(kActivations, activation);
}

Result<MlpActivation> mlp_activation_from_name(std::string_view name) {
  return from_name(kActivations, "mlp activation", name);
}

std::string_view mlp_task_name(MlpTask task) {
  return name_of(kTasks, task);
}

Result<MlpTask> mlp_task_from_name(std::string_view name) {
  return from_name(kTasks, "mlp task", name);
}

int64_t MlpConfig::layer_inputs(int64_t layer) const {
  CHECK(layer >= 0 && layer < layers());
  return layer == 0 ? inputs : hidden[static_cast<size_t>(layer - 1)];
}

int64_t MlpConfig::layer_outputs(int64_t layer) const {
  CHECK(layer >= 0 && layer < layers());
  return layer == layers() - 1 ? outputs : hidden[static_cast<size_t>(layer)];
}

std::vector<Parameter> parameter_table(const MlpConfig& config) {
  std::vector<Parameter> table;
  for (int64_t layer = 0; layer < config.layers(); ++layer) {
    const int64_t in = config.layer_inputs(layer);
    const int64_t out = config.layer_outputs(layer);
    // Every second module of the nn.Sequential is an activation.
    const std::string module = std::to_string(2 * layer);
    table.push_back({.id = std::ssize(table),
                     .name = module + ".weight",
                     .block = layer,
                     .dims = {out, in},
                     .rank = 2,
                     .weight_decay = true,
                     .is_hidden_matrix = layer > 0 && layer + 1 < config.layers(),
                     .init = Init::kUniform,
                     .fan_in = in});
    table.push_back({.id = std::ssize(table),
                     .name = module + ".bias",
                     .block = layer,
                     .dims = {out, 1},
                     .init = Init::kUniform,
                     .fan_in = in});
  }
  return table;
}

std::vector<std::string> mlp_problems(const MlpConfig& config, std::string_view path) {
  std::vector<std::string> problems;
  const auto expect = [&](const std::string& field, int64_t value, int64_t min, int64_t max) {
    if (value >= min && value <= max) return;
    problems.push_back(std::string(path) + "." + field + ": " + std::to_string(value) +
                       " is not between " + std::to_string(min) + " and " + std::to_string(max));
  };
  expect("inputs", config.inputs, 1, kMlpWidthMax);
  if (std::ssize(config.hidden) > kMlpHiddenMax) {
    problems.push_back(std::string(path) + ".hidden: " + std::to_string(config.hidden.size()) +
                       " layers, expected at most " + std::to_string(kMlpHiddenMax));
  }
  for (size_t i = 0; i < config.hidden.size(); ++i) {
    expect("hidden[" + std::to_string(i) + "]", config.hidden[i], 1, kMlpWidthMax);
  }
  if (config.task == MlpTask::kClassification && config.outputs < kClassesMin) {
    problems.push_back(std::string(path) + ".outputs: " + std::to_string(config.outputs) +
                       " classes, expected at least " + std::to_string(kClassesMin));
  } else {
    expect("outputs", config.outputs, 1, kMlpWidthMax);
  }
  return problems;
}

}  // namespace lockstep
