#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep::conformance {

// A row of docs/api-server.md: a feature of API servers, whether the embedded one has it, and the
// cases that prove it.
struct TableRow {
  std::string what;
  bool supported = false;
  std::string reason;  // why not
  std::vector<std::string> cases;
};

// Parses the rows of the document's tables, whose cells are: feature, `yes` or `no: reason`, and
// cases as `Suite.Name`. kInvalid names the line.
Result<std::vector<TableRow>> parse_table(const std::string& markdown);
// Reads docs/api-server.md of this checkout.
Result<std::vector<TableRow>> read_table();

// Returns why the embedded server doesn't run this case; empty if it does.
std::string reason_not_supported(const std::string& case_name);

}  // namespace lockstep::conformance
