#pragma once

#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "local/table/table.h"

namespace lockstep::local {

// Prints a built-in kind: `cells` returns one value for each of `columns`.
struct RowPrinter {
  std::string_view api_version;
  std::string_view kind;
  std::vector<TableColumn> columns;
  Json (*cells)(const Json& object, WallTime now);
};

// Returns null for kinds without a printer of their own.
// Source: the columns that kube-apiserver gives `kubectl get -o wide`.
const RowPrinter* find_row_printer(std::string_view api_version, std::string_view kind);

}  // namespace lockstep::local
