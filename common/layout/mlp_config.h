#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/layout/parameters.h"

namespace lockstep {

// f of the hidden layers. kGelu is the tanh approximation, as in GPT-2.
enum class MlpActivation : uint8_t { kRelu, kGelu, kTanh };
// - kClassification: the outputs are logits of classes; the loss is the cross-entropy with the
//   sample's class.
// - kRegression: the outputs are values; the loss is the mean squared error over them.
enum class MlpTask : uint8_t { kClassification, kRegression };

// "relu", "gelu", "tanh"; "classification", "regression". The functions from names return
// kNotFound, with the known names, for any other name.
std::string_view mlp_activation_name(MlpActivation activation);
Result<MlpActivation> mlp_activation_from_name(std::string_view name);
std::string_view mlp_task_name(MlpTask task);
Result<MlpTask> mlp_task_from_name(std::string_view name);

inline constexpr int64_t kMlpWidthMax = 1 << 18;
inline constexpr int64_t kMlpHiddenMax = 64;  // hidden layers

// A multi-layer perceptron: y = W_n f(... f(W_1 x + b_1) ...) + b_n. Each layer is a block.
struct MlpConfig {
  int64_t inputs = 0;                // values of a sample
  std::vector<int64_t> hidden = {};  // widths of the hidden layers; empty: a linear model
  int64_t outputs = 0;               // classes or values
  MlpActivation activation = MlpActivation::kRelu;
  MlpTask task = MlpTask::kClassification;

  int64_t layers() const { return std::ssize(hidden) + 1; }
  // Returns the number of values that a layer reads and computes; 0 <= layer < layers().
  int64_t layer_inputs(int64_t layer) const;
  int64_t layer_outputs(int64_t layer) const;
  bool operator==(const MlpConfig&) const = default;
};

// Returns the parameters of the whole model: a weight [outputs, inputs] and a bias [outputs] per
// layer, named as in a PyTorch nn.Sequential of nn.Linear and activations ("0.weight", "0.bias",
// "2.weight", ...).
std::vector<Parameter> parameter_table(const MlpConfig& config);

// Returns every mistake as `path.field: what was found, what would be right`; empty if the model
// can be built. The bounds are such that no size overflows 64 bits.
std::vector<std::string> mlp_problems(const MlpConfig& config, std::string_view path);

}  // namespace lockstep
