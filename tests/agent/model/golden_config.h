#pragma once

#include <string>

#include "common/layout/model_config.h"

namespace lockstep::test {

// Returns the dimensions of tests/golden/llama.py. The golden files store them as text, which
// `text(key)` returns.
template <class Text>
ModelConfig golden_llama(Text text) {
  const auto integer = [&](const char* key) { return int64_t{std::stoll(text(key))}; };
  const auto number = [&](const char* key) { return std::stod(text(key)); };
  return {.layers = integer("layers"),
          .width = integer("width"),
          .heads = integer("heads"),
          .context = integer("context"),
          .vocabulary = integer("vocabulary"),
          .family = Family::kLlama,
          .hidden = integer("hiddenWidth"),
          .tied = text("head") == "tied",
          .kv_heads = integer("kvHeads"),
          .rotary_base = number("ropeBase"),
          .rotary_scaling = {.factor = number("ropeFactor"),
                             .low_turns = number("ropeLow"),
                             .high_turns = number("ropeHigh"),
                             .original_context = integer("ropeOriginal")},
          .norm_epsilon = number("normEpsilon")};
}

// The same of tests/golden/bert.py.
template <class Text>
ModelConfig golden_bert(Text text) {
  const auto integer = [&](const char* key) { return int64_t{std::stoll(text(key))}; };
  return {.layers = integer("layers"),
          .width = integer("width"),
          .heads = integer("heads"),
          .context = integer("context"),
          .vocabulary = integer("vocabulary"),
          .family = Family::kBert,
          .hidden = integer("hiddenWidth"),
          .tied = text("head") == "tied",
          .norm_epsilon = std::stod(text("normEpsilon"))};
}

}  // namespace lockstep::test
