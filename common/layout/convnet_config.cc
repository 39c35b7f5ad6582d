#include "common/layout/convnet_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/check.h"

namespace lockstep {
namespace {

constexpr std::array<std::pair<std::string_view, BatchNormScope>, 2> kScopes{
    {{"synchronized", BatchNormScope::kSynchronized}, {"local", BatchNormScope::kLocal}}};

Parameter vector_of(const std::string& name, int64_t block, int64_t size, Init init) {
  return {.name = name, .block = block, .dims = {size, 1}, .init = init};
}

void add_norm(const ConvUnit& unit, int64_t block, std::vector<Parameter>& table) {
  table.push_back(vector_of(unit.norm + ".weight", block, unit.filters, Init::kOne));
  table.push_back(vector_of(unit.norm + ".bias", block, unit.filters, Init::kZero));
  table.push_back(vector_of(unit.norm + ".running_mean", block, unit.filters, Init::kZero));
  table.back().is_statistic = true;
  table.push_back(vector_of(unit.norm + ".running_var", block, unit.filters, Init::kOne));
  table.back().is_statistic = true;
}

}  // namespace

const std::vector<ConvnetPreset>& convnet_presets() {
  using Kind = ConvnetKind;
  static const std::vector<ConvnetPreset> kPresets{
      {"lenet5", {Kind::kLenet5, 28, 28, 1, 10}, 12},
      {"vgg11", {Kind::kVgg11, 32, 32, 3, 10}, 32},
      {"vgg16", {Kind::kVgg16, 32, 32, 3, 10}, 32},
      {"resnet20", {Kind::kResnet20, 32, 32, 3, 10}, 4},
      {"resnet18", {Kind::kResnet18, 224, 224, 3, 1000}, 32},
      {"resnet50", {Kind::kResnet50, 224, 224, 3, 1000}, 32},
  };
  return kPresets;
}

const ConvnetPreset* convnet_preset(std::string_view name) {
  for (const ConvnetPreset& preset : convnet_presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

bool has_batch_norm(ConvnetKind kind) {
  const auto preset = std::ranges::find(convnet_presets(), kind,
                                        [](const ConvnetPreset& each) { return each.config.kind; });
  return std::ranges::any_of(convnet_units(preset->config), &ConvUnit::has_norm);
}

std::string_view batch_norm_scope_name(BatchNormScope scope) {
  for (const auto& [name, known] : kScopes) {
    if (known == scope) return name;
  }
  return "";
}

Result<BatchNormScope> batch_norm_scope_from_name(std::string_view name) {
  for (const auto& [known, scope] : kScopes) {
    if (known == name) return scope;
  }
  return not_found("[batch norm] expected synchronized or local, got \"" + std::string(name) +
                   "\"");
}

std::vector<Parameter> parameter_table(const ConvnetConfig& config) {
  std::vector<Parameter> table;
  int64_t block = 0;
  const std::vector<ConvUnit> units = convnet_units(config);
  for (const ConvUnit& unit : units) {
    table.push_back({.name = unit.conv + ".weight",
                     .block = block,
                     .dims = {unit.filters, unit.filter_count()},
                     .rank = 2,
                     .weight_decay = true,
                     .is_hidden_matrix = unit.input >= 0 && block + 1 < std::ssize(units),
                     .init = Init::kUniform,
                     .fan_in = unit.filter_count()});
    if (unit.has_norm()) {
      add_norm(unit, block, table);
    } else {
      table.push_back(vector_of(unit.conv + ".bias", block, unit.filters, Init::kUniform));
      table.back().fan_in = unit.filter_count();
    }
    ++block;
  }
  for (size_t id = 0; id < table.size(); ++id) table[id].id = static_cast<int64_t>(id);
  return table;
}

std::vector<int64_t> block_parameters(const ConvnetConfig& config, int64_t block) {
  std::vector<int64_t> ids;
  for (const Parameter& parameter : parameter_table(config)) {
    if (parameter.block == block) ids.push_back(parameter.id);
  }
  return ids;
}

std::vector<std::string> convnet_problems(const ConvnetConfig& config, std::string_view path) {
  std::vector<std::string> problems;
  const auto expect = [&](const char* field, int64_t value, int64_t min, int64_t max) {
    if (value >= min && value <= max) return;
    problems.push_back(std::string(path) + "." + field + ": " + std::to_string(value) +
                       " is not between " + std::to_string(min) + " and " + std::to_string(max));
  };
  const int64_t edge_min = convnet_presets()[static_cast<size_t>(config.kind)].edge_min;
  expect("imageHeight", config.height, edge_min, kImageEdgeMax);
  expect("imageWidth", config.width, edge_min, kImageEdgeMax);
  expect("imageChannels", config.channels, 1, kImageChannelsMax);
  expect("outputs", config.classes, 2, kClassesMax);
  return problems;
}

}  // namespace lockstep
