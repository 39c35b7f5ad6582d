#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep {

enum class OutputFormat { kTable, kWide, kJson, kYaml, kName };
// What -o may be; kInvalid names the choices.
Result<OutputFormat> output_format(const std::string& text);

// Columns padded to the widest cell of each, three spaces apart, nothing behind the last one.
// `widths`, if given, are kept from one piece of a table to the next.
std::string aligned(const std::vector<std::vector<std::string>>& rows,
                    std::vector<size_t>* widths = nullptr);

// A meta.k8s.io/v1 Table as rows of cells, the header first (unless it has none); in a wide one all
// columns, else those of priority 0; with a NAMESPACE column if asked for.
struct TableView {
  bool is_wide = false;
  bool with_namespace = false;
  bool with_header = true;
};
std::vector<std::vector<std::string>> table_rows(const Json& table, const TableView& view);
// The same for a server that answered with a list instead: NAME and AGE.
std::vector<std::vector<std::string>> list_rows(const Json& list, const TableView& view,
                                                WallTime now);

// Indented JSON as kubectl prints it, or YAML; "trainingjob.lockstep.dev/name" lines for kName.
std::string document_text(const Json& document, OutputFormat format);

// "45s", "3m20s", "125m", "5h3m", "25h", "3d4h", "300d", "3y": as kubectl's AGE. Source:
// k8s.io/apimachinery, pkg/util/duration.
std::string age_text(Duration age);
// From an RFC 3339 time; "<unknown>" where it is none.
std::string age_of(const std::string& time, WallTime now);

}  // namespace lockstep
