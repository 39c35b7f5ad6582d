#include <array>
#include <string>

#include "common/layout/model_config.h"

namespace lockstep {
namespace {

struct Bound {
  const char* field;
  int64_t ModelConfig::*member;
  int64_t min;
  int64_t max;
};

constexpr std::array<Bound, 7> kBounds{{
    {"layers", &ModelConfig::layers, 1, 1024},
    {"width", &ModelConfig::width, 1, 65536},
    {"heads", &ModelConfig::heads, 1, 1024},
    {"context", &ModelConfig::context, 1, 1 << 20},
    {"vocabulary", &ModelConfig::vocabulary, 2, 1 << 24},
    {"hiddenWidth", &ModelConfig::hidden, 0, 1 << 18},
    {"kvHeads", &ModelConfig::kv_heads, 0, 1024},
}};

constexpr double kRotaryBaseMax = 1e12;
constexpr double kRotaryFactorMax = 1e6;

// Finds the problems of a model, each with the path of its field. A rule is skipped if it cannot be
// judged because of a problem that another rule reports.
class Rules {
 public:
  Rules(const ModelConfig& config, int64_t tensor, std::string_view path)
      : config_(config), tensor_(tensor), prefix_(std::string(path) + ".") {}

  std::vector<std::string> problems() {
    check_bounds();
    if (!problems_.empty()) return problems_;
    check_heads();
    if (!problems_.empty()) return problems_;
    check_split("hiddenWidth", config_.hidden_width());
    const BlockDesign& design = config_.design();
    if (design.grouped_heads) check_kv_heads();
    if (design.has_rotary()) check_rotary();
    if (design.sets_epsilon) check_epsilon();
    check_belongs();
    return problems_;
  }

 private:
  void check_bounds() {
    for (const Bound& bound : kBounds) {
      const int64_t value = config_.*bound.member;
      if (value >= bound.min && value <= bound.max) continue;
      add(bound.field, std::to_string(value) + " is not between " + std::to_string(bound.min) +
                           " and " + std::to_string(bound.max));
    }
  }
  void check_heads() {
    if (config_.width % config_.heads != 0) {
      add("heads", std::to_string(config_.heads) + " does not divide " + prefix_ +
                       "width: " + std::to_string(config_.width));
    }
    check_split("heads", config_.heads);
  }
  void check_split(const char* field, int64_t value, const char* unless = "") {
    if (tensor_ >= 1 && value % tensor_ == 0) return;
    add(field, std::to_string(value) + " is not a multiple of the tensor-parallel size " +
                   std::to_string(tensor_) + unless);
  }
  void check_kv_heads() {
    const int64_t kv_heads = config_.kv_head_count();
    if (config_.heads % kv_heads != 0) {
      add("kvHeads", std::to_string(kv_heads) + " does not divide " + prefix_ +
                         "heads: " + std::to_string(config_.heads));
    } else if (tensor_ % kv_heads != 0) {  // otherwise several shards have the same head
      check_split("kvHeads", kv_heads, ", nor divides it");
    }
  }
  void check_rotary() {
    if (config_.head_dim() % 2 != 0) {
      add("heads", std::to_string(config_.heads) + " makes heads of " +
                       std::to_string(config_.head_dim()) +
                       " values, expected an even number (rotary embedding rotates pairs)");
    }
    if (!(config_.rotary_base > 1 && config_.rotary_base <= kRotaryBaseMax)) {
      add("ropeBase", "expected a number above 1, at most 1e12");
    }
    const RotaryScaling& scaling = config_.rotary_scaling;
    if (!(scaling.factor >= 1 && scaling.factor <= kRotaryFactorMax)) {
      add("ropeScaling.factor", "expected a number from 1 to 1e6");
    }
    if (!(scaling.low_turns > 0 && scaling.low_turns < scaling.high_turns &&
          scaling.high_turns <= kRotaryFactorMax)) {
      add("ropeScaling.highFrequencyFactor",
          "expected a number above lowFrequencyFactor, which is above 0; at most 1e6");
    }
    if (scaling.original_context < 1 || scaling.original_context > 1 << 20) {
      add("ropeScaling.originalContext", std::to_string(scaling.original_context) +
                                             " is not between 1 and " + std::to_string(1 << 20));
    }
  }
  void check_epsilon() {
    if (config_.norm_epsilon > 0 && config_.norm_epsilon <= 1) return;
    add("normEpsilon", "expected a number above 0, at most 1");
  }
  // Fields that only some designs read.
  void check_belongs() {
    const ModelConfig defaults;
    const BlockDesign& design = config_.design();
    struct Given {
      const char* field;
      bool is_read;
      bool is_given;
      const char* families = "llama";
    };
    const Given fields[] = {
        {"kvHeads", design.grouped_heads,
         config_.kv_heads != 0 && config_.kv_heads != config_.heads},
        {"ropeBase", design.has_rotary(), config_.rotary_base != defaults.rotary_base},
        {"ropeScaling", design.has_rotary(), config_.rotary_scaling != defaults.rotary_scaling},
        {"normEpsilon", design.sets_epsilon, config_.norm_epsilon != design.norm_epsilon,
         "llama or bert"}};
    for (const auto& [field, is_read, is_given, families] : fields) {
      if (is_given && !is_read) add(field, std::string("only valid with family: ") + families);
    }
  }
  void add(const std::string& field, const std::string& text) {
    problems_.push_back(prefix_ + field + ": " + text);
  }

  const ModelConfig& config_;
  const int64_t tensor_;
  const std::string prefix_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> model_problems(const ModelConfig& config, int64_t tensor,
                                        std::string_view path) {
  return Rules(config, tensor, path).problems();
}

Status validate(const ModelConfig& config, int64_t tensor, std::string_view path) {
  std::string text;
  for (const std::string& problem : model_problems(config, tensor, path)) {
    if (!text.empty()) text += "\n";
    text += problem;
  }
  if (!text.empty()) return invalid(text, Blame::kConfig);
  return {};
}

}  // namespace lockstep
