#include "common/layout/model_config.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

struct Preset {
  std::string_view name;
  ModelConfig config;
};

constexpr int64_t kGpt2Vocabulary = 50257;
constexpr std::array<Preset, 4> kPresets{{
    {"gpt2-124m", {12, 768, 12, 1024, kGpt2Vocabulary}},
    {"gpt2-350m", {24, 1024, 16, 1024, kGpt2Vocabulary}},
    {"gpt2-774m", {36, 1280, 20, 1024, kGpt2Vocabulary}},
    {"gpt2-1.5b", {48, 1600, 25, 1024, kGpt2Vocabulary}},
}};

struct Bound {
  const char* field;
  int64_t ModelConfig::*member;
  int64_t min;
  int64_t max;
};

constexpr std::array<Bound, 5> kBounds{{
    {"layers", &ModelConfig::layers, 1, 1024},
    {"width", &ModelConfig::width, 1, 65536},
    {"heads", &ModelConfig::heads, 1, 1024},
    {"context", &ModelConfig::context, 1, 1 << 20},
    {"vocabulary", &ModelConfig::vocabulary, 2, 1 << 24},
}};

constexpr int64_t kLargeVocabulary = 4096;
constexpr int64_t kVocabularyTile = 64;

}  // namespace

Result<ModelConfig> model_preset(std::string_view name) {
  std::string known;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset.config;
    if (!known.empty()) known += ", ";
    known += preset.name;
  }
  return not_found("[model preset] expected one of " + known + ", got \"" + std::string(name) +
                   "\"");
}

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  names.reserve(std::size(kPresets));
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::vector<std::string> model_problems(const ModelConfig& config, int64_t tensor,
                                        std::string_view path) {
  std::vector<std::string> problems;
  const std::string prefix = std::string(path) + ".";
  for (const Bound& bound : kBounds) {
    const int64_t value = config.*bound.member;
    if (value >= bound.min && value <= bound.max) continue;
    problems.push_back(prefix + bound.field + ": " + std::to_string(value) + " is not between " +
                       std::to_string(bound.min) + " and " + std::to_string(bound.max));
  }
  if (!problems.empty()) return problems;
  const std::string heads = prefix + "heads: " + std::to_string(config.heads);
  if (config.width % config.heads != 0) {
    problems.push_back(heads + " does not divide " + prefix +
                       "width: " + std::to_string(config.width));
  }
  if (tensor < 1 || config.heads % tensor != 0) {
    problems.push_back(heads + " is not a multiple of the tensor-parallel size " +
                       std::to_string(tensor));
  }
  return problems;
}

Status validate(const ModelConfig& config, int64_t tensor, std::string_view path) {
  std::string text;
  for (const std::string& problem : model_problems(config, tensor, path)) {
    if (!text.empty()) text += "\n";
    text += problem;
  }
  if (!text.empty()) return invalid(text);
  return {};
}

int64_t layer_count(const Stage& stage, const ModelConfig& config) {
  return std::min(stage.end, config.layers + 1) - std::max<int64_t>(stage.begin, 1);
}

Stage whole_model(const ModelConfig& config) {
  return {.begin = 0, .end = block_count(config)};
}

Stage pipeline_stage(const ModelConfig& config, int64_t size, int64_t index) {
  CHECK(size >= 1 && size <= config.layers && index >= 0 && index < size);
  const int64_t each = config.layers / size;
  const int64_t more = config.layers % size;
  const auto first_layer = [&](int64_t stage) { return stage * each + std::min(stage, more); };
  Stage stage{.begin = 1 + first_layer(index), .end = 1 + first_layer(index + 1)};
  if (index == 0) stage.begin = 0;
  if (index == size - 1) stage.end = block_count(config);
  return stage;
}

int64_t padded_vocabulary(const ModelConfig& config, int64_t tensor) {
  const int64_t unit = tensor * (config.vocabulary >= kLargeVocabulary ? kVocabularyTile : 1);
  return (config.vocabulary + unit - 1) / unit * unit;
}

}  // namespace lockstep
