#pragma once

#include <string>
#include <string_view>

#include "common/base/json.h"

namespace lockstep {

struct YamlLimits {
  size_t bytes_max = 1u << 20;
  int depth_max = 32;
  size_t values_max = 50'000;
  size_t aliases_max = 100;  // uses of `*name`
};

// One YAML document as JSON, by the core schema (what is plain true/false/null/number becomes one).
// Refuses, each with line and column: several documents, duplicate keys, cyclic aliases, alias
// bombs, what is beyond the limits, and texts on which the parser does not end (a lone `,`).
// kInvalid; never throws.
Result<Json> json_from_yaml(std::string_view text, const YamlLimits& limits = {});

// Reads the file (bounded before it is in memory) as YAML, or as JSON if it begins with `{`.
Result<Json> read_document(const std::string& file, const YamlLimits& limits = {});

}  // namespace lockstep
