#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep::cli {

enum class OutputFormat { kTable, kWide, kJson, kYaml, kName };
// Parses the value of -o; kInvalid names the choices.
Result<OutputFormat> output_format(const std::string& text);

// Converts a meta.k8s.io/v1 Table to rows of cells, the header first. A wide table has all columns,
// others those of priority 0.
struct TableView {
  bool is_wide = false;
  bool with_namespace = false;
  bool with_header = true;
};
std::vector<std::vector<std::string>> table_rows(const Json& table, const TableView& view);
// Like table_rows() for a server that answered with a list: NAME and AGE.
std::vector<std::vector<std::string>> list_rows(const Json& list, const TableView& view,
                                                WallTime now);

// Formats a document as indented JSON like kubectl, as YAML, or for kName as lines such as
// "trainingjob.lockstep.dev/name".
std::string document_text(const Json& document, OutputFormat format);

// Formats an age like kubectl's AGE: "45s", "3m20s", "125m", "5h3m", "25h", "3d4h", "300d", "3y".
// Source: k8s.io/apimachinery, pkg/util/duration.
std::string age_text(Duration age);
// Returns the age of an RFC 3339 time; "<unknown>" if the text is not one.
std::string age_of(const std::string& time, WallTime now);

}  // namespace lockstep::cli
