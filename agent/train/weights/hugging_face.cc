#include "agent/train/weights/hugging_face.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "agent/train/weights/float_decode.h"

namespace lockstep::train {
namespace {

// Properties of a family's files, in addition to the names of our parameters.
struct Format {
  Family family;
  std::string_view model;   // for messages
  std::string_view prefix;  // that all names of a file have, but for the head's, or none
  std::string_view tokens;  // this and below: without the prefix
  std::string_view positions;
  std::string_view layer;       // before a layer's number
  std::string_view first_norm;  // after it, of what each layer has once
  std::array<std::string_view, 2> buffers;
  std::string_view head = "lm_head.weight";
  // Tensors that are no parameters of ours; without the prefix.
  std::array<std::string_view, 6> others = {};
  bool has_old_norms = false;  // whose weight and bias may be called gamma and beta
};

constexpr Format kGpt2Format{.family = Family::kGpt2,
                             .model = "GPT-2",
                             .prefix = "transformer.",
                             .tokens = "wte.weight",
                             .positions = "wpe.weight",
                             .layer = "h.",
                             .first_norm = ".ln_1.weight",
                             .buffers = {".attn.bias", ".attn.masked_bias"}};
constexpr Format kLlamaFormat{
    .family = Family::kLlama,
    .model = "Llama",
    .prefix = "",
    .tokens = "model.embed_tokens.weight",
    .positions = "",
    .layer = "model.layers.",
    .first_norm = ".input_layernorm.weight",
    .buffers = {".self_attn.rotary_emb.inv_freq", ".self_attn.rotary_emb.inv_freq"}};

constexpr Format kBertFormat{
    .family = Family::kBert,
    .model = "BERT for masked tokens",
    .prefix = "bert.",
    .tokens = "embeddings.word_embeddings.weight",
    .positions = "embeddings.position_embeddings.weight",
    .layer = "encoder.layer.",
    .first_norm = ".attention.output.LayerNorm.weight",
    .buffers = {},
    .head = "cls.predictions.decoder.weight",
    .others = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias",
               "cls.seq_relationship.weight", "cls.seq_relationship.bias",
               "cls.predictions.decoder.bias"},
    .has_old_norms = true};

const Format& format_of(Family family) {
  switch (family) {
    case Family::kGpt2:
      return kGpt2Format;
    case Family::kLlama:
      return kLlamaFormat;
    case Family::kBert:
      return kBertFormat;
  }
  return kGpt2Format;
}

// Returns the name in newer versions.
std::string renewed(std::string_view name, const Format& format) {
  if (!format.has_old_norms) return std::string(name);
  for (const auto& [old, now] : {std::pair{"LayerNorm.gamma", "LayerNorm.weight"},
                                 std::pair{"LayerNorm.beta", "LayerNorm.bias"}}) {
    if (!name.ends_with(old)) continue;
    name.remove_suffix(std::string_view(old).size());
    return std::string(name) + now;
  }
  return std::string(name);
}

std::string_view without(std::string_view prefix, std::string_view name) {
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

// A file's tensors by their names without the prefix, which all of them have or none.
class Names {
 public:
  Names(const SafetensorsHeader& header, const Format& format) : format_(format) {
    const std::string prefixed = std::string(format.prefix) + std::string(format.tokens);
    for (const TensorInfo& tensor : header.tensors) has_prefix_ |= tensor.name == prefixed;
    for (const TensorInfo& tensor : header.tensors) tensors_.emplace(short_name(tensor), &tensor);
  }

  const Format& format() const { return format_; }
  const TensorInfo* find(std::string_view name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : found->second;
  }
  bool is_buffer(const TensorInfo& tensor) const {
    const std::string name = short_name(tensor);
    if (std::ranges::find(format_.others, name) != format_.others.end()) return true;
    return std::any_of(format_.buffers.begin(), format_.buffers.end(), [&](std::string_view rest) {
      return !rest.empty() && is_of_layer(name, rest);
    });
  }
  int64_t layers() const {
    return std::count_if(tensors_.begin(), tensors_.end(), [&](const auto& tensor) {
      return is_of_layer(tensor.first, format_.first_norm);
    });
  }
  // Rows of a matrix of the first layer; 0 if no matrix has that name.
  int64_t rows_in_first_layer(std::string_view rest) const {
    const TensorInfo* tensor = in_first_layer(rest);
    return tensor == nullptr ? 0 : tensor->shape[0];
  }
  int64_t columns_in_first_layer(std::string_view rest) const {
    const TensorInfo* tensor = in_first_layer(rest);
    return tensor == nullptr ? 0 : tensor->shape[1];
  }

 private:
  std::string short_name(const TensorInfo& tensor) const {
    return renewed(has_prefix_ ? without(format_.prefix, tensor.name) : tensor.name, format_);
  }
  // "h.12.ln_1.weight" and the like: that of a layer, whichever.
  bool is_of_layer(std::string_view name, std::string_view rest) const {
    const size_t before = format_.layer.size();
    if (!name.starts_with(format_.layer) || !name.ends_with(rest)) return false;
    const std::string_view number =
        name.substr(before, name.size() - std::min(name.size(), before + rest.size()));
    return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
  }
  const TensorInfo* in_first_layer(std::string_view rest) const {
    const TensorInfo* tensor = find(std::string(format_.layer) + "0." + std::string(rest));
    return tensor != nullptr && tensor->shape.size() == 2 ? tensor : nullptr;
  }

  const Format& format_;
  bool has_prefix_ = false;
  std::map<std::string, const TensorInfo*, std::less<>> tensors_;
};

std::string tensor_text(const TensorInfo& tensor) {
  return tensor.dtype + " " + shape_text(tensor.shape);
}

// The hidden width, in either layout: Conv1D's c_fc is [C,H], ours [H,C].
void read_gpt2_layer(const Names& names, ModelConfig& config) {
  const int64_t rows = names.rows_in_first_layer("mlp.c_fc.weight");
  const int64_t columns = names.columns_in_first_layer("mlp.c_fc.weight");
  config.hidden = rows == config.width ? columns : rows;
}

// Parts apart, or packed.
void read_llama_layer(const Names& names, ModelConfig& config) {
  config.hidden = std::max(names.rows_in_first_layer("mlp.gate_proj.weight"),
                           names.rows_in_first_layer("mlp.gate_up_proj.weight") / 2);
  const int64_t packed = names.rows_in_first_layer("self_attn.qkv_proj.weight");
  const int64_t keys = std::max(names.rows_in_first_layer("self_attn.k_proj.weight"),
                                packed > config.width ? (packed - config.width) / 2 : 0);
  if (keys == 0 || config.width % keys != 0) return;
  config.heads = config.width / keys;
  config.kv_heads = 1;
}

Result<ModelConfig> dimensions_of(const Names& names) {
  const Format& format = names.format();
  ModelConfig config{.heads = 1, .family = format.family};
  for (const std::string_view name : {format.tokens, format.positions}) {
    if (name.empty()) continue;
    const TensorInfo* tensor = names.find(name);
    if (tensor == nullptr) {
      return invalid(std::string(name) + " is missing: these are not the weights of a " +
                     std::string(format.model));
    }
    if (tensor->shape.size() != 2) {
      return invalid(std::string(name) + " is " + tensor_text(*tensor) + ", expected a matrix");
    }
  }
  config.vocabulary = names.find(format.tokens)->shape[0];
  config.width = names.find(format.tokens)->shape[1];
  config.layers = names.layers();
  if (!format.positions.empty()) config.context = names.find(format.positions)->shape[0];
  switch (format.family) {
    case Family::kGpt2:
      read_gpt2_layer(names, config);
      break;
    case Family::kLlama:
      read_llama_layer(names, config);
      break;
    case Family::kBert:
      config.hidden = names.rows_in_first_layer("intermediate.dense.weight");
      break;
  }
  return config;
}

// A dimension that the file does not determine is 0 there, and matches any value.
struct Dimension {
  const char* field;
  int64_t job;
  int64_t file;
  bool is_limit = false;  // the job's may be smaller
};

Status check_equal(std::initializer_list<Dimension> dimensions) {
  std::string problems;
  for (const Dimension& dimension : dimensions) {
    if (dimension.job == dimension.file || dimension.file == 0) continue;
    if (dimension.is_limit && dimension.job < dimension.file) continue;
    problems += (problems.empty() ? "" : "; ") + std::string("spec.train.model.") +
                dimension.field + ": " + std::to_string(dimension.job) + ", the file has " +
                std::to_string(dimension.file);
    if (dimension.is_limit) problems += " positions, expected at most as many";
  }
  if (!problems.empty()) return invalid(problems);
  return {};
}

Status check_dimensions(const ModelConfig& file, const ModelConfig& job) {
  TRY(check_equal({{"layers", job.layers, file.layers},
                   {"width", job.width, file.width},
                   {"context", job.context, file.context, true},
                   {"vocabulary", job.vocabulary, file.vocabulary}}));
  TRY(check_equal({{"hiddenWidth", job.hidden_width(), file.hidden}}));
  if (file.kv_heads == 0 || job.kv_width() == file.kv_width()) return {};
  return invalid("spec.train.model.kvHeads: " + std::to_string(job.kv_head_count()) + " of " +
                 std::to_string(job.head_dim()) + " values make keys of " +
                 std::to_string(job.kv_width()) + ", the file has keys of " +
                 std::to_string(file.kv_width()));
}

bool has_shape(const TensorInfo& tensor, const StoredTensorInfo& wanted) {
  if (tensor.shape == wanted.shape) return true;
  if (!wanted.may_be_longer || tensor.shape.size() != wanted.shape.size()) return false;
  return tensor.shape[0] > wanted.shape[0] &&
         std::equal(tensor.shape.begin() + 1, tensor.shape.end(), wanted.shape.begin() + 1);
}

Status check_tensor(const TensorInfo& tensor, const StoredTensorInfo& wanted) {
  if (is_float_dtype(tensor.dtype) && has_shape(tensor, wanted)) return {};
  std::string text = tensor.name.substr(0, kNameShown) + " is " + tensor_text(tensor) +
                     ", expected F32, F16 or BF16 " + shape_text(wanted.shape) +
                     (wanted.may_be_longer ? " or more rows" : "");
  if (wanted.is_transposed && std::equal(tensor.shape.begin(), tensor.shape.end(),
                                         wanted.shape.rbegin(), wanted.shape.rend())) {
    text +=
        "; it has the transpose, like Lockstep checkpoints; convert those with `lockstep export`";
  }
  return invalid(text);
}

Error missing(const Names& names, std::string_view name, const StoredTensorInfo& wanted,
              const Parameter& parameter) {
  std::string text =
      std::string(name) + " is missing, expected F32, F16 or BF16 " + shape_text(wanted.shape);
  if (!parameter.parts.empty() &&
      names.find(without(names.format().prefix, parameter.name)) != nullptr) {
    text +=
        "; the file has it packed, like Lockstep checkpoints; convert those with `lockstep export`";
  }
  return invalid(text);
}

bool is_position_table(const Parameter& parameter) {
  return parameter.id == kPositionEmbedding &&
         (parameter.name == "transformer.wpe.weight" ||
          parameter.name == "bert.embeddings.position_embeddings.weight");
}

// GPT-2's matrices within blocks.
bool is_conv1d(const Parameter& parameter) {
  return parameter.rank == 2 && parameter.name.starts_with("transformer.h.");
}

}  // namespace

std::vector<StoredTensorInfo> hugging_face_tensors(const Parameter& parameter) {
  const auto [rows, columns] = parameter.dims;
  std::vector<StoredTensorInfo> tensors;
  int64_t first_row = 0;
  for (const ParameterPart& part : parameter.parts) {
    if (part.name.empty()) break;
    tensors.push_back({.name = part.name,
                       .shape = parameter.rank == 1 ? std::vector<int64_t>{part.rows}
                                                    : std::vector<int64_t>{part.rows, columns},
                       .first_row = first_row,
                       .rows = part.rows});
    first_row += part.rows;
  }
  if (!tensors.empty()) return tensors;
  StoredTensorInfo whole{.name = parameter.name, .shape = parameter.shape(), .rows = rows};
  whole.is_transposed = is_conv1d(parameter);
  whole.may_be_longer = is_position_table(parameter);
  if (whole.is_transposed) std::swap(whole.shape[0], whole.shape[1]);
  return {whole};
}

Result<ModelConfig> dimensions_of(const SafetensorsHeader& header) {
  const Names llama(header, kLlamaFormat);
  if (llama.find(kLlamaFormat.tokens) != nullptr) return dimensions_of(llama);
  const Names bert(header, kBertFormat);
  if (bert.find(kBertFormat.tokens) != nullptr) return dimensions_of(bert);
  return dimensions_of(Names(header, kGpt2Format));
}

std::string_view head_name(Family family) {
  return format_of(family).head;
}

Result<HuggingFaceWeights> match_hugging_face(const SafetensorsHeader& header,
                                              const ModelConfig& config) {
  const Format& format = format_of(config.family);
  const Names names(header, format);
  TRY_ASSIGN(const ModelConfig found, dimensions_of(names));
  TRY(check_dimensions(found, config));
  HuggingFaceWeights weights;
  std::set<const TensorInfo*> used;
  const std::vector<Parameter> table = parameter_table(config);
  for (const Parameter& parameter : table) {
    std::vector<const TensorInfo*>& tensors = weights.parameters.emplace_back();
    for (const StoredTensorInfo& wanted : hugging_face_tensors(parameter)) {
      const std::string_view name = without(format.prefix, wanted.name);
      const TensorInfo* tensor = names.find(name);
      if (tensor == nullptr) return missing(names, name, wanted, parameter);
      TRY(check_tensor(*tensor, wanted));
      tensors.push_back(tensor);
      used.insert(tensor);
    }
  }
  if (config.tied) weights.head = names.find(format.head);
  if (weights.head != nullptr) {
    TRY(check_tensor(*weights.head, hugging_face_tensors(table[kTokenEmbedding]).front()));
  }
  for (const TensorInfo& tensor : header.tensors) {
    const bool is_used = &tensor == weights.head || used.contains(&tensor);
    if (is_used || names.is_buffer(tensor)) continue;
    return invalid(tensor.name.substr(0, kNameShown) + ", " + tensor_text(tensor) +
                   ", is not part of the model; expected the weights of a plain " +
                   std::string(format.model));
  }
  return weights;
}

}  // namespace lockstep::train
