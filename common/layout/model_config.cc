#include "common/layout/model_config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

namespace lockstep {
namespace {

struct Preset {
  std::string_view name;
  ModelConfig config;
};

constexpr int64_t kGpt2Vocabulary = 50257;

// The dimensions in which Llamas differ, from config.json in meta-llama's Hugging Face
// repositories.
struct LlamaSize {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t hidden = 0;
};
constexpr LlamaSize kLlama8B{32, 4096, 32, 8, 14336};
constexpr LlamaSize kLlama70B{80, 8192, 64, 8, 28672};

constexpr ModelConfig llama(const LlamaSize& size) {
  return {.layers = size.layers,
          .width = size.width,
          .heads = size.heads,
          .family = Family::kLlama,
          .hidden = size.hidden,
          .tied = false,
          .kv_heads = size.kv_heads};
}

// Source: Touvron et al., "Llama 2", 2023, table 1.
constexpr ModelConfig llama_2(const LlamaSize& size) {
  ModelConfig config = llama(size);
  config.context = 4096;
  config.vocabulary = 32000;
  return config;
}

// Source: Grattafiori et al., "The Llama 3 herd of models", 2024, table 3.
constexpr ModelConfig llama_3(const LlamaSize& size) {
  ModelConfig config = llama(size);
  config.context = 8192;
  config.vocabulary = 128256;
  config.rotary_base = 500000;
  return config;
}

constexpr ModelConfig llama_3_1(const LlamaSize& size) {
  ModelConfig config = llama_3(size);
  config.context = 131072;
  config.rotary_scaling.factor = 8;
  return config;
}

constexpr ModelConfig llama_3_2(const LlamaSize& size) {
  ModelConfig config = llama_3_1(size);
  config.tied = true;
  config.rotary_scaling.factor = 32;
  return config;
}

// Source: Devlin et al., "BERT", 2019, and for the smaller ones Turc et al., "Well-read students
// learn better", 2019; the vocabulary of uncased English.
constexpr ModelConfig bert(int64_t layers, int64_t width) {
  return {.layers = layers,
          .width = width,
          .heads = width / 64,
          .context = 512,
          .vocabulary = 30522,
          .family = Family::kBert,
          .norm_epsilon = 1e-12};
}

// GPT-2 sizes: Radford et al., 2019, table 2. The presets are named after the real number of
// weights, which differs from the numbers in that table.
constexpr Preset kPresets[] = {
    {"gpt2-124m", {12, 768, 12, 1024, kGpt2Vocabulary}},
    {"gpt2-350m", {24, 1024, 16, 1024, kGpt2Vocabulary}},
    {"gpt2-774m", {36, 1280, 20, 1024, kGpt2Vocabulary}},
    {"gpt2-1.5b", {48, 1600, 25, 1024, kGpt2Vocabulary}},
    {"llama-2-7b", llama_2({32, 4096, 32, 32, 11008})},
    {"llama-2-13b", llama_2({40, 5120, 40, 40, 13824})},
    {"llama-2-70b", llama_2(kLlama70B)},
    {"llama-3-8b", llama_3(kLlama8B)},
    {"llama-3-70b", llama_3(kLlama70B)},
    {"llama-3.1-8b", llama_3_1(kLlama8B)},
    {"llama-3.1-70b", llama_3_1(kLlama70B)},
    {"llama-3.1-405b", llama_3_1({126, 16384, 128, 8, 53248})},
    {"llama-3.2-1b", llama_3_2({16, 2048, 32, 8, 8192})},
    {"llama-3.2-3b", llama_3_2({28, 3072, 24, 8, 8192})},
    {"bert-tiny", bert(2, 128)},
    {"bert-mini", bert(4, 256)},
    {"bert-small", bert(4, 512)},
    {"bert-base", bert(12, 768)},
    {"bert-large", bert(24, 1024)},
};

constexpr std::array<std::pair<std::string_view, Family>, 3> kFamilies{{
    {"gpt2", Family::kGpt2},
    {"llama", Family::kLlama},
    {"bert", Family::kBert},
}};

// By Family.
constexpr std::array<BlockDesign, 3> kDesigns{BlockDesign{},
                                              BlockDesign{.norm = NormKind::kRms,
                                                          .positions = PositionKind::kRotary,
                                                          .mlp = MlpKind::kSwiglu,
                                                          .biases = false,
                                                          .grouped_heads = true,
                                                          .tied_by_default = false,
                                                          .sets_epsilon = true},
                                              BlockDesign{.mlp = MlpKind::kErfGelu,
                                                          .is_bidirectional = true,
                                                          .norms_the_stream = true,
                                                          .token_types = 2,
                                                          .head_transform = true,
                                                          .sets_epsilon = true,
                                                          .norm_epsilon = 1e-12}};

constexpr int64_t kLargeVocabulary = 4096;
constexpr int64_t kVocabularyTile = 64;
constexpr int64_t kHiddenTile = 256;

}  // namespace

const BlockDesign& block_design(Family family) {
  return kDesigns[static_cast<size_t>(family)];
}

std::string_view family_name(Family family) {
  for (const auto& [name, known] : kFamilies) {
    if (known == family) return name;
  }
  return "";
}

Result<Family> family_from_name(std::string_view name) {
  for (const auto& [known, family] : kFamilies) {
    if (known == name) return family;
  }
  return not_found("[model family] expected gpt2, llama or bert, got \"" + std::string(name) +
                   "\"");
}

int64_t ModelConfig::hidden_width() const {
  if (hidden != 0) return hidden;
  if (!design().has_swiglu()) return 4 * width;
  return (8 * width / 3 + kHiddenTile - 1) / kHiddenTile * kHiddenTile;
}

int64_t ModelConfig::hidden_in_width() const {
  return design().has_swiglu() ? 2 * hidden_width() : hidden_width();
}

int64_t ModelConfig::local_kv_heads(int64_t tensor) const {
  return std::max<int64_t>(1, kv_head_count() / tensor);
}

int64_t ModelConfig::local_qkv_width(int64_t tensor) const {
  return width / tensor + 2 * local_kv_heads(tensor) * head_dim();
}

int64_t masked_count(int64_t positions) {
  return std::max<int64_t>(1, (positions * 15 + 50) / 100);
}

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

namespace {

// The cost of a token's forward: multiplications with the elements of matrices, and those of
// attention at the full context. Backward costs twice as much.
double layer_cost(const ModelConfig& config) {
  const int64_t products = config.width * (config.qkv_width() + config.width) +
                           config.width * (config.hidden_in_width() + config.hidden_width());
  const int64_t seen = config.design().is_bidirectional ? 2 : 1;  // half of the keys if causal
  return static_cast<double>(products + seen * config.width * config.context);
}

double head_cost(const ModelConfig& config) {
  const int64_t transform = config.design().head_transform ? config.width * config.width : 0;
  return static_cast<double>(padded_vocabulary(config, 1) * config.width + transform);
}

// Returns the layers of the stage that has the head too, so that the slowest stage takes the least
// time. Among equal ones, the most layers.
int64_t layers_of_last_stage(const ModelConfig& config, int64_t size) {
  if (size == 1) return config.layers;
  const double layer = layer_cost(config);
  const double head = head_cost(config);
  int64_t best = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t last = 1; last <= config.layers / size; ++last) {
    const int64_t largest = (config.layers - last + size - 2) / (size - 1);  // of the other stages
    const double slowest =
        std::max(layer * static_cast<double>(largest), layer * static_cast<double>(last) + head);
    if (slowest > least) continue;
    least = slowest;
    best = last;
  }
  return best;
}

}  // namespace

bool has_block(const std::vector<Stage>& chunks, int64_t block) {
  return std::ranges::any_of(
      chunks, [block](const Stage& chunk) { return block >= chunk.begin && block < chunk.end; });
}

int64_t layer_count(const Stage& stage, const ModelConfig& config) {
  return std::min(stage.end, config.layers + 1) - std::max<int64_t>(stage.begin, 1);
}

Stage whole_model(const ModelConfig& config) {
  return {.begin = 0, .end = block_count(config)};
}

Stage pipeline_stage(const ModelConfig& config, int64_t size, int64_t index) {
  CHECK(size >= 1 && size <= config.layers && index >= 0 && index < size);
  const int64_t last = layers_of_last_stage(config, size);
  const int64_t others = std::max<int64_t>(size - 1, 1);
  const int64_t each = (config.layers - last) / others;
  const int64_t more = (config.layers - last) % others;
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
