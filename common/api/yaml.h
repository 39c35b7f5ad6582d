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

// Converts one YAML document to JSON by the core schema (plain true, false, null and numbers are
// converted). Refuses, each with line and column: several documents, duplicate keys, cyclic
// aliases, alias bombs, documents beyond the limits, and texts on which the parser does not
// terminate (a lone `,`). kInvalid; never throws.
Result<Json> json_from_yaml(std::string_view text, const YamlLimits& limits = {});

// Reads a file as YAML, or as JSON if it begins with `{`. Checks the size before loading it.
Result<Json> read_document(const std::string& file, const YamlLimits& limits = {});

// Returns every document of a stream separated by `---`, without empty ones. Text that begins with
// `{` is one JSON document. Allows at most `documents_max`; an error says which document it is in.
Result<std::vector<Json>> documents_from_yaml(std::string_view text, size_t documents_max = 100,
                                              const YamlLimits& limits = {});

// Writes the document in block style for people, keys sorted alphabetically. Strings are plain if
// both YAML 1.1 and 1.2 read them as strings, else quoted; multi-line strings become blocks.
// json_from_yaml() reads the same value back. Never throws.
std::string yaml_from_json(const Json& document);

}  // namespace lockstep
