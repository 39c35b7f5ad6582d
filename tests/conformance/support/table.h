#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace lockstep::conformance {

// A row of docs/api-server.md: something that an API server can do, whether the embedded one does
// it, and the cases that say so.
struct TableRow {
  std::string what;
  bool supported = false;
  std::string reason;  // why not
  std::vector<std::string> cases;
};

// The rows of the document's tables, whose cells are: what, yes | no: reason, cases as
// `Suite.Name`. kInvalid names the line.
Result<std::vector<TableRow>> parse_table(const std::string& markdown);
// Of the document in this checkout.
Result<std::vector<TableRow>> read_table();

// Why the embedded server is not asked this case; empty: it is.
std::string reason_not_supported(const std::string& case_name);

}  // namespace lockstep::conformance
