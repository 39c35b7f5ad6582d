#include "common/layout/model_design.h"

#include <algorithm>
#include <numeric>

#include "common/layout/stage_cut.h"

namespace lockstep {
namespace {

// Calls the function that is given for the design's family.
template <class... Cases>
struct ByFamily : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
ByFamily(Cases...) -> ByFamily<Cases...>;

template <class... Cases>
auto by_family(const ModelDesign& design, Cases... cases) {
  return std::visit(ByFamily{cases...}, design);
}

std::string lines(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) text += (text.empty() ? "" : "\n") + problem;
  return text;
}

double mlp_matrix_elements(const MlpConfig& config) {
  double elements = 0;
  for (int64_t layer = 0; layer < config.layers(); ++layer) {
    elements += static_cast<double>(config.layer_inputs(layer)) *
                static_cast<double>(config.layer_outputs(layer));
  }
  return elements;
}

BatchDesign mlp_batch(const MlpConfig& config) {
  const BatchTensor features{"features", TensorType::kF32, config.inputs};
  if (config.task == MlpTask::kClassification) {
    return {
        .tensors = {features, {"labels", TensorType::kI32, 1}}, .counted = 1, .has_accuracy = true};
  }
  return {.tensors = {features, {"values", TensorType::kF32, config.outputs}},
          .counted = config.outputs};
}

BatchDesign image_batch(const ConvnetConfig& config) {
  const int64_t values = config.height * config.width * config.channels;
  return {.tensors = {{"images", TensorType::kF32, values}, {"labels", TensorType::kI32, 1}},
          .counted = 1,
          .has_accuracy = true,
          .has_top5 = config.classes > kTopAnswers};
}

double products_of(const ConvUnit& unit) {
  return static_cast<double>(unit.conv_values()) * static_cast<double>(unit.filter_count());
}

// Multiplications of a sample's forward.
double convnet_products(const ConvnetConfig& config) {
  double products = 0;
  for (const ConvUnit& unit : convnet_units(config)) products += products_of(unit);
  return products;
}

// Checks a family without tensor parallelism.
Status validate_whole(std::vector<std::string> problems, int64_t tensor, std::string_view path,
                      const char* what) {
  if (tensor != 1) {
    problems.push_back(std::string(path) + ".family: " + what + " is not split over " +
                       std::to_string(tensor) + " tensor-parallel ranks, expected 1");
  }
  if (problems.empty()) return {};
  return invalid(lines(problems), Blame::kConfig);
}

// The arena of a rank that has whole parameters.
ParameterArena whole_arena(const std::vector<Parameter>& table, const std::vector<Stage>& chunks,
                           const TensorShard& shard) {
  ParameterArena arena{.entries = {}, .shard = shard};
  for (const Parameter& parameter : table) {
    if (!has_block(chunks, parameter.block)) continue;
    arena.add({.id = parameter.id, .dims = parameter.dims, .count = parameter.count()});
  }
  return arena;
}

BatchDesign text_batch(const ModelConfig& config, int64_t sequence) {
  return {
      .tensors = {{"tokens", TensorType::kI32, sequence}, {"targets", TensorType::kI32, sequence}},
      .counted = config.design().is_bidirectional ? masked_count(sequence) : sequence};
}

}  // namespace

std::string_view family_name(const ModelDesign& design) {
  return by_family(
      design, [](const ModelConfig& config) { return family_name(config.family); },
      [](const MlpConfig&) { return std::string_view("mlp"); },
      [](const ConvnetConfig&) { return std::string_view("convnet"); });
}

const ModelConfig* transformer_of(const ModelDesign& design) {
  return std::get_if<ModelConfig>(&design);
}

bool is_tied(const ModelDesign& design) {
  const ModelConfig* config = transformer_of(design);
  return config != nullptr && config->tied;
}

Status validate(const ModelDesign& design, int64_t tensor, std::string_view path) {
  return by_family(
      design, [&](const ModelConfig& config) { return validate(config, tensor, path); },
      [&](const MlpConfig& config) {
        return validate_whole(mlp_problems(config, path), tensor, path, "an mlp");
      },
      [&](const ConvnetConfig& config) {
        return validate_whole(convnet_problems(config, path), tensor, path, "a convnet");
      });
}

std::vector<Parameter> parameter_table(const ModelDesign& design) {
  return std::visit([](const auto& config) { return parameter_table(config); }, design);
}

std::vector<int64_t> block_parameters(const ModelDesign& design, int64_t block) {
  return by_family(
      design, [block](const ModelConfig& config) { return block_parameters(config, block); },
      [block](const MlpConfig&) {  // weight and bias
        return std::vector<int64_t>{2 * block, 2 * block + 1};
      },
      [block](const ConvnetConfig& config) { return block_parameters(config, block); });
}

int64_t parameter_count(const ModelDesign& design) {
  int64_t count = 0;
  for (const Parameter& parameter : parameter_table(design)) count += parameter.count();
  return count;
}

ParameterArena parameter_arena(const ModelDesign& design, const std::vector<Stage>& chunks,
                               const TensorShard& shard) {
  return by_family(
      design, [&](const ModelConfig& config) { return parameter_arena(config, chunks, shard); },
      [&](const auto& config) { return whole_arena(parameter_table(config), chunks, shard); });
}

ParameterArena parameter_arena(const ModelDesign& design, const Stage& stage,
                               const TensorShard& shard) {
  return parameter_arena(design, std::vector<Stage>{stage}, shard);
}

std::vector<std::vector<IndexedBlock>> indexed_blocks(const ModelDesign& design,
                                                      const ParameterArena& arena) {
  return indexed_blocks(parameter_table(design), parameter_arena(design, whole_model(design)),
                        arena);
}

bool backward_reads(const ModelDesign& design, int64_t block) {
  CHECK(block >= 0 && block < block_count(design));
  return block > 0 || std::holds_alternative<ConvnetConfig>(design);
}

int64_t block_count(const ModelDesign& design) {
  return by_family(
      design, [](const ModelConfig& config) { return block_count(config); },
      [](const MlpConfig& config) { return config.layers(); },
      [](const ConvnetConfig& config) { return std::ssize(convnet_units(config)); });
}

Stage whole_model(const ModelDesign& design) {
  return {.begin = 0, .end = block_count(design)};
}

namespace {

// Layers that a stage has as a whole, and the multiplications of a sample in each one.
struct StageLayers {
  std::vector<Stage> blocks;
  std::vector<double> costs;
};

StageLayers stage_layers_of(const MlpConfig& config) {
  StageLayers layers;
  for (int64_t layer = 0; layer < config.layers(); ++layer) {
    layers.blocks.push_back({.begin = layer, .end = layer + 1});
    layers.costs.push_back(static_cast<double>(config.layer_inputs(layer)) *
                           static_cast<double>(config.layer_outputs(layer)));
  }
  return layers;
}

StageLayers stage_layers_of(const ConvnetConfig& config) {
  const std::vector<ConvUnit> units = convnet_units(config);
  StageLayers layers{.blocks = convnet_pieces(config), .costs = {}};
  for (const Stage& piece : layers.blocks) {
    double cost = 0;
    for (int64_t unit = piece.begin; unit < piece.end; ++unit) {
      cost += products_of(units[static_cast<size_t>(unit)]);
    }
    layers.costs.push_back(cost);
  }
  return layers;
}

// Returns the blocks of a part, if each part has this many layers.
Stage part_of(const std::vector<Stage>& layers, const std::vector<int64_t>& counts, int64_t part) {
  const auto first = counts.begin();
  const int64_t before = std::accumulate(first, first + part, int64_t{0});
  const int64_t last = before + counts[static_cast<size_t>(part)] - 1;
  return {.begin = layers[static_cast<size_t>(before)].begin,
          .end = layers[static_cast<size_t>(last)].end};
}

// The embedding is with the first part, the head with the last one.
Stage part_of(const ModelConfig& config, const std::vector<int64_t>& counts, int64_t part) {
  const auto first = counts.begin();
  const int64_t before = std::accumulate(first, first + part, int64_t{0});
  const bool is_last = part + 1 == std::ssize(counts);
  const int64_t layers = counts[static_cast<size_t>(part)];
  return {.begin = part == 0 ? 0 : 1 + before,
          .end = is_last ? block_count(config) : 1 + before + layers};
}

Stage given_part(const ModelDesign& design, const std::vector<int64_t>& counts, int64_t part) {
  return by_family(
      design, [&](const ModelConfig& config) { return part_of(config, counts, part); },
      [&](const auto& config) { return part_of(stage_layers_of(config).blocks, counts, part); });
}

}  // namespace

int64_t stage_layers(const ModelDesign& design) {
  return by_family(
      design, [](const ModelConfig& config) { return config.layers; },
      [](const auto& config) { return std::ssize(stage_layers_of(config).blocks); });
}

Stage pipeline_stage(const ModelDesign& design, int64_t size, int64_t index) {
  return by_family(
      design, [&](const ModelConfig& config) { return pipeline_stage(config, size, index); },
      [&](const auto& config) {
        const StageLayers layers = stage_layers_of(config);
        CHECK(index >= 0 && index < size);
        return part_of(layers.blocks, cut_by_cost(layers.costs, size), index);
      });
}

int64_t edge_values(const ModelDesign& design, int64_t sequence, int64_t block) {
  CHECK(block > 0 && block < block_count(design));
  return by_family(
      design, [&](const ModelConfig& config) { return sequence * config.width; },
      [&](const MlpConfig& config) { return config.layer_inputs(block); },
      [&](const ConvnetConfig& config) {
        return convnet_units(config)[static_cast<size_t>(block - 1)].out_values();
      });
}

std::vector<Stage> stage_chunks(const ModelDesign& design, const Mesh& mesh, int64_t stage) {
  const int64_t parts = mesh.pipeline * mesh.virtual_stages;
  std::vector<Stage> chunks;
  for (int64_t part = stage; part < parts; part += mesh.pipeline) {
    chunks.push_back(mesh.part_layers.empty() ? pipeline_stage(design, parts, part)
                                              : given_part(design, mesh.part_layers, part));
  }
  return chunks;
}

std::string part_problem(const ModelDesign& design, const Mesh& mesh) {
  const std::vector<int64_t>& parts = mesh.part_layers;
  if (parts.empty()) return "";
  const int64_t expected = mesh.pipeline * mesh.virtual_stages;
  if (std::ssize(parts) != expected) {
    return "found " + std::to_string(parts.size()) + " numbers, expected " +
           std::to_string(expected) + ", one for each of pipeline x virtualStages parts";
  }
  int64_t left = stage_layers(design);
  bool has_each = true;
  for (const int64_t layers : parts) {
    has_each = has_each && layers >= 1 && layers <= left;  // so that nothing overflows
    if (has_each) left -= layers;
  }
  if (has_each && left == 0) return "";
  return "expected numbers of at least 1 whose sum is the layers, " +
         std::to_string(stage_layers(design));
}

std::vector<int64_t> blocks_of(const std::vector<Stage>& chunks) {
  std::vector<int64_t> blocks;
  for (const Stage& chunk : chunks) {
    for (int64_t block = chunk.begin; block < chunk.end; ++block) blocks.push_back(block);
  }
  return blocks;
}

int64_t residual_layers(const ModelDesign& design) {
  const ModelConfig* transformer = transformer_of(design);
  return transformer == nullptr ? 0 : transformer->layers;
}

bool shares_batches(const ModelDesign& design) {
  const auto* convnet = std::get_if<ConvnetConfig>(&design);
  return convnet != nullptr && convnet->batch_norm == BatchNormScope::kSynchronized;
}

int64_t tokens_per_sample(const ModelDesign& design) {
  const ModelConfig* transformer = transformer_of(design);
  return transformer == nullptr ? 0 : transformer->context;
}

bool predicts_masked(const ModelDesign& design) {
  const ModelConfig* transformer = transformer_of(design);
  return transformer != nullptr && transformer->design().is_bidirectional;
}

double flops_per_sample(const ModelDesign& design, int64_t sequence, FlopsFormula formula) {
  return by_family(
      design,
      [&](const ModelConfig& config) {
        return static_cast<double>(sequence) * flops_per_token(config, sequence, formula);
      },
      [](const MlpConfig& config) { return 6 * mlp_matrix_elements(config); },
      [](const ConvnetConfig& config) { return 6 * convnet_products(config); });
}

int64_t BatchDesign::bytes(int64_t samples) const {
  int64_t values = 0;
  for (const BatchTensor& tensor : tensors) values += tensor.values;
  return samples * values * kTensorValueBytes;
}

BatchDesign batch_design(const ModelDesign& design, int64_t sequence) {
  return by_family(
      design, [sequence](const ModelConfig& config) { return text_batch(config, sequence); },
      [](const MlpConfig& config) { return mlp_batch(config); },
      [](const ConvnetConfig& config) { return image_batch(config); });
}

}  // namespace lockstep
