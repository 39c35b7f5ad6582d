#pragma once

#include <string>
#include <string_view>
#include <vector>

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

// Every document of a stream, which `---` separates; empty ones are left out. `{` begins one JSON
// document. At most `documents_max`; an error says which document it is in.
Result<std::vector<Json>> documents_from_yaml(std::string_view text, size_t documents_max = 100,
                                              const YamlLimits& limits = {});

// The document in block style, keys in the order of the alphabet, as people read it: texts plain
// where YAML 1.1 and 1.2 both take them for texts, else quoted; several lines as a block.
// json_from_yaml() reads the same again. Never throws.
std::string yaml_from_json(const Json& document);

}  // namespace lockstep
