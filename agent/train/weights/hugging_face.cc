#include "agent/train/weights/hugging_face.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "agent/train/weights/float_decode.h"

namespace lockstep {
namespace {

constexpr std::string_view kModelPrefix = "transformer.";
constexpr std::string_view kTokens = "wte.weight";
constexpr std::string_view kPositions = "wpe.weight";
constexpr std::string_view kHead = "lm_head.weight";
constexpr size_t kNameShown = 200;

// A file's tensors by their names without `transformer.`, which all of them have or none.
class Names {
 public:
  explicit Names(const SafetensorsHeader& header) {
    const std::string prefixed = std::string(kModelPrefix) + std::string(kTokens);
    for (const TensorInfo& tensor : header.tensors) has_prefix_ |= tensor.name == prefixed;
    for (const TensorInfo& tensor : header.tensors)
      tensors_.emplace(without_prefix(tensor), &tensor);
  }

  std::string_view without_prefix(const TensorInfo& tensor) const {
    std::string_view name = tensor.name;
    if (has_prefix_ && name.starts_with(kModelPrefix)) name.remove_prefix(kModelPrefix.size());
    return name;
  }
  const TensorInfo* find(std::string_view name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : found->second;
  }
  // Norms that a block begins with.
  int64_t layers() const;

 private:
  bool has_prefix_ = false;
  std::map<std::string_view, const TensorInfo*> tensors_;
};

std::string_view short_name(const Parameter& parameter) {
  return std::string_view(parameter.name).substr(kModelPrefix.size());
}

// "h.12.ln_1.weight" and the like: that of a block, whichever.
bool is_of_block(std::string_view name, std::string_view rest) {
  if (!name.starts_with("h.") || !name.ends_with(rest)) return false;
  const std::string_view number =
      name.substr(2, name.size() - std::min(name.size(), 2 + rest.size()));
  return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_buffer(std::string_view name) {
  return is_of_block(name, ".attn.bias") || is_of_block(name, ".attn.masked_bias");
}

int64_t Names::layers() const {
  return std::count_if(tensors_.begin(), tensors_.end(), [](const auto& tensor) {
    return is_of_block(tensor.first, ".ln_1.weight");
  });
}

std::string tensor_text(const TensorInfo& tensor) {
  return tensor.dtype + " " + shape_text(tensor.shape);
}

Result<ModelConfig> dimensions_of(const Names& names) {
  ModelConfig config{.heads = 1};
  for (const std::string_view name : {kTokens, kPositions}) {
    const TensorInfo* tensor = names.find(name);
    if (tensor == nullptr) {
      return invalid(std::string(name) + " is missing: these are no weights of a GPT-2");
    }
    if (tensor->shape.size() != 2) {
      return invalid(std::string(name) + " is " + tensor_text(*tensor) + ", expected a matrix");
    }
  }
  config.vocabulary = names.find(kTokens)->shape[0];
  config.width = names.find(kTokens)->shape[1];
  config.context = names.find(kPositions)->shape[0];
  config.layers = names.layers();
  return config;
}

Status check_dimensions(const ModelConfig& file, const ModelConfig& job) {
  static constexpr std::pair<const char*, int64_t ModelConfig::*> kDimensions[] = {
      {"layers", &ModelConfig::layers},
      {"width", &ModelConfig::width},
      {"context", &ModelConfig::context},
      {"vocabulary", &ModelConfig::vocabulary}};
  std::string problems;
  for (const auto& [name, member] : kDimensions) {
    if (file.*member == job.*member) continue;
    problems += (problems.empty() ? "" : "; ") + std::string("spec.train.model.") + name + ": " +
                std::to_string(job.*member) + ", the file has " + std::to_string(file.*member);
  }
  if (!problems.empty()) return invalid(problems);
  return {};
}

Status check_tensor(const TensorInfo& tensor, const Parameter& parameter) {
  const std::vector<int64_t> shape = hugging_face_shape(parameter);
  if (is_float_dtype(tensor.dtype) && tensor.shape == shape) return {};
  std::string text = tensor.name.substr(0, kNameShown) + " is " + tensor_text(tensor) +
                     ", expected F32, F16 or BF16 " + shape_text(shape);
  if (is_conv1d(parameter) && tensor.shape == parameter.shape()) {
    text +=
        "; that is its transpose, as checkpoints of Lockstep have it, of which `lockstep "
        "export` makes such a file";
  }
  return invalid(text);
}

}  // namespace

bool is_conv1d(const Parameter& parameter) {
  return parameter.rank == 2 && parameter.id != kTokenEmbedding &&
         parameter.id != kPositionEmbedding;
}

std::vector<int64_t> hugging_face_shape(const Parameter& parameter) {
  if (is_conv1d(parameter)) return {parameter.dims[1], parameter.dims[0]};
  return parameter.shape();
}

Result<ModelConfig> dimensions_of(const SafetensorsHeader& header) {
  return dimensions_of(Names(header));
}

Result<HuggingFaceWeights> match_hugging_face(const SafetensorsHeader& header,
                                              const ModelConfig& config) {
  const Names names(header);
  TRY_ASSIGN(const ModelConfig found, dimensions_of(names));
  TRY(check_dimensions(found, config));
  HuggingFaceWeights weights;
  std::set<const TensorInfo*> used;
  const std::vector<Parameter> table = parameter_table(config);
  for (const Parameter& parameter : table) {
    const TensorInfo* tensor = names.find(short_name(parameter));
    if (tensor == nullptr) {
      return invalid(std::string(short_name(parameter)) +
                     " is missing, expected F32, F16 or BF16 " +
                     shape_text(hugging_face_shape(parameter)));
    }
    TRY(check_tensor(*tensor, parameter));
    weights.parameters.push_back(tensor);
    used.insert(tensor);
  }
  weights.head = names.find(kHead);
  if (weights.head != nullptr) TRY(check_tensor(*weights.head, table[kTokenEmbedding]));
  for (const TensorInfo& tensor : header.tensors) {
    const bool is_used = &tensor == weights.head || used.contains(&tensor);
    if (is_used || is_buffer(names.without_prefix(tensor))) continue;
    return invalid(tensor.name.substr(0, kNameShown) + ", " + tensor_text(tensor) +
                   ", has no place in the model, expected a GPT-2 without other parts");
  }
  return weights;
}

}  // namespace lockstep
