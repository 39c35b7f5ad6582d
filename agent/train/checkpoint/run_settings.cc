#include "agent/train/checkpoint/run_settings.h"

#include "common/base/json.h"

namespace lockstep::train {
namespace {

// Shortest text that reads back as the same number.
std::string number(double value) {
  return dump_json(value);
}

void add_model(const ModelConfig& model, RunSettings& settings) {
  const auto add = [&](const char* field, std::string value) {
    settings.emplace(std::string("spec.train.model.") + field, std::move(value));
  };
  add("family", std::string(family_name(model.family)));
  add("layers", std::to_string(model.layers));
  add("width", std::to_string(model.width));
  add("heads", std::to_string(model.heads));
  add("context", std::to_string(model.context));
  add("vocabulary", std::to_string(model.vocabulary));
  add("hiddenWidth", std::to_string(model.hidden_width()));
  add("head", model.tied ? "tied" : "untied");
  const BlockDesign& design = model.design();
  if (design.grouped_heads) add("kvHeads", std::to_string(model.kv_head_count()));
  if (design.norm == NormKind::kRms) add("normEpsilon", number(model.norm_epsilon));
  if (!design.has_rotary()) return;
  const RotaryScaling& scaling = model.rotary_scaling;
  add("ropeBase", number(model.rotary_base));
  add("ropeScaling.factor", number(scaling.factor));
  if (scaling.factor == 1) return;  // nothing reads the rest
  add("ropeScaling.lowFrequencyFactor", number(scaling.low_turns));
  add("ropeScaling.highFrequencyFactor", number(scaling.high_turns));
  add("ropeScaling.originalContext", std::to_string(scaling.original_context));
}

}  // namespace

RunSettings run_settings(const TrainSpec& train, int64_t tokens) {
  RunSettings settings;
  add_model(model_config(train), settings);
  const DataSpec& data = train.data;
  settings["spec.train.data.path"] = "data of " + std::to_string(tokens) + " tokens";
  settings["spec.train.data.tokenizer"] = data.tokenizer;
  settings["spec.train.data.validationFraction"] = number(data.validationFraction);
  settings["spec.train.data.seed"] = std::to_string(data.seed);
  settings["spec.train.optimizer.name"] = train.optimizer.name;
  settings["spec.train.optimizer.beta1"] = number(train.optimizer.beta1);
  settings["spec.train.optimizer.beta2"] = number(train.optimizer.beta2);
  settings["spec.train.precision"] = train.precision;
  settings["spec.train.rounding"] = train.rounding;
  // Initial parameters are in the checkpoint; draws to come are not.
  if (train.rounding == "stochastic") settings["spec.train.seed"] = std::to_string(train.seed);
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
