#include "agent/train/checkpoint/run_settings.h"

#include <functional>

#include "common/base/json.h"

namespace lockstep::train {
namespace {

// Shortest text that reads back as the same number.
std::string number(double value) {
  return dump_json(value);
}

// Adds a setting by the path of its field below spec.train.model.
using Add = std::function<void(const char* field, std::string value)>;

void add_transformer(const ModelConfig& model, const Add& add) {
  add("layers", std::to_string(model.layers));
  add("width", std::to_string(model.width));
  add("heads", std::to_string(model.heads));
  add("context", std::to_string(model.context));
  add("vocabulary", std::to_string(model.vocabulary));
  add("hiddenWidth", std::to_string(model.hidden_width()));
  add("head", model.tied ? "tied" : "untied");
  const BlockDesign& design = model.design();
  if (design.grouped_heads) add("kvHeads", std::to_string(model.kv_head_count()));
  if (design.sets_epsilon) add("normEpsilon", number(model.norm_epsilon));
  if (!design.has_rotary()) return;
  const RotaryScaling& scaling = model.rotary_scaling;
  add("ropeBase", number(model.rotary_base));
  add("ropeScaling.factor", number(scaling.factor));
  if (scaling.factor == 1) return;  // nothing reads the rest
  add("ropeScaling.lowFrequencyFactor", number(scaling.low_turns));
  add("ropeScaling.highFrequencyFactor", number(scaling.high_turns));
  add("ropeScaling.originalContext", std::to_string(scaling.original_context));
}

std::string list_of(const std::vector<int64_t>& widths) {
  std::string text;
  for (const int64_t width : widths) text += (text.empty() ? "" : ", ") + std::to_string(width);
  return "[" + text + "]";
}

void add_mlp(const MlpConfig& model, const Add& add) {
  add("inputs", std::to_string(model.inputs));
  add("hidden", list_of(model.hidden));
  add("outputs", std::to_string(model.outputs));
  add("activation", std::string(mlp_activation_name(model.activation)));
  add("task", std::string(mlp_task_name(model.task)));
}

void add_convnet(const TrainSpec& train, const ConvnetConfig& model, const Add& add) {
  add("preset", train.model.preset);
  add("imageHeight", std::to_string(model.height));
  add("imageWidth", std::to_string(model.width));
  add("imageChannels", std::to_string(model.channels));
  add("outputs", std::to_string(model.classes));
  add("batchNorm", std::string(batch_norm_scope_name(model.batch_norm)));
}

// Returns the changes of the images before training.
std::string changes_of(const DataSpec& data) {
  std::string text = data.flip ? "flips" : "no flips";
  text += ", crops of padding " + std::to_string(data.cropPadding) + ", normalisation";
  for (size_t i = 0; i < data.mean.size(); ++i) {
    text += " " + number(data.mean[i]) + "/" + number(data.deviation[i]);
  }
  return text;
}

void add_common(const TrainSpec& train, RunSettings& settings) {
  settings["spec.train.data.validationFraction"] = number(train.data.validationFraction);
  settings["spec.train.data.seed"] = std::to_string(train.data.seed);
  settings["spec.train.optimizer.name"] = train.optimizer.name;
  const std::string& name = train.optimizer.name;
  if (name == "adamw" || name == "muon") {
    settings["spec.train.optimizer.beta1"] = number(train.optimizer.beta1);
    settings["spec.train.optimizer.beta2"] = number(train.optimizer.beta2);
  } else if (name == "sgd") {
    settings["spec.train.optimizer.momentum"] = number(train.optimizer.momentum);
  }
  if (name == "muon") {
    settings["spec.train.optimizer.matrixMomentum"] = number(train.optimizer.matrixMomentum);
  }
}

}  // namespace

RunSettings run_settings(const TrainSpec& train, const std::string& data_size) {
  RunSettings settings;
  const Add add = [&settings](const char* field, std::string value) {
    settings.emplace(std::string("spec.train.model.") + field, std::move(value));
  };
  const DataSpec& data = train.data;
  if (is_click_family(train.model.family)) {
    add("family", train.model.family);
    add("factors", std::to_string(click_factors(train.model)));
    if (const auto hidden = click_hidden(train.model); !hidden.empty()) {
      add("hidden", list_of(hidden));
    }
    settings["spec.train.data.path"] = "data of " + data_size;
    settings["spec.train.data.format"] = data.format;
    settings["spec.train.seed"] = std::to_string(train.seed);  // rows to come begin with it
    add_common(train, settings);
    return settings;
  }
  const ModelDesign design = model_design(train);
  add("family", std::string(family_name(design)));
  if (const ModelConfig* transformer = transformer_of(design)) {
    add_transformer(*transformer, add);
    settings["spec.train.data.path"] = "data of " + data_size;
    settings["spec.train.data.tokenizer"] = data.tokenizer;
    if (predicts_masked(design)) {
      settings["spec.train.data.maskToken"] = std::to_string(mask_token(data, *transformer));
    }
  } else if (const auto* convnet = std::get_if<ConvnetConfig>(&design)) {
    add_convnet(train, *convnet, add);
    settings[data.path.empty() ? "spec.train.data.features" : "spec.train.data.path"] =
        "data of " + data_size + ", " + changes_of(data);
  } else {
    add_mlp(std::get<MlpConfig>(design), add);
    settings["spec.train.data.features"] = "data of " + data_size;
  }
  add_common(train, settings);
  settings["spec.train.ema"] = train.ema > 0 ? "kept" : "none";
  settings["spec.train.precision"] = train.precision;
  settings["spec.train.rounding"] = train.rounding;
  // Initial parameters are in the checkpoint; draws to come are not.
  const bool draws = train.rounding == "stochastic" || train.dropout > 0;
  if (draws) settings["spec.train.seed"] = std::to_string(train.seed);
  return settings;
}

Status check_settings(const RunSettings& job, const RunSettings& stored,
                      const std::string& checkpoint) {
  std::string problems;
  for (const auto& [path, value] : job) {
    const auto found = stored.find(path);
    if (found == stored.end() || found->second == value) continue;
    problems += (problems.empty() ? "" : "; ") + path + ": " + value + ", but the checkpoint has " +
                found->second;
  }
  if (problems.empty()) return {};
  return invalid(problems + "; " + checkpoint +
                     " cannot be resumed with other settings; restore them, or set another "
                     "spec.checkpoint.path",
                 Blame::kConfig);
}

}  // namespace lockstep::train
