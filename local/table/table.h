#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep::local {

// meta.k8s.io/v1 Table, what `kubectl get` asks the server for. Source: Kubernetes, "API concepts:
// receiving resources as Tables".

struct TableColumn {
  std::string name;
  std::string type = "string";  // string, integer, number, boolean, date
  std::string format;           // "name" for the first one
  std::string description;
  std::string json_path;  // of a CRD's additionalPrinterColumns: ".status.state"
  int priority = 0;       // above 0: in wide output alone
};

enum class TableRows { kMetadata, kNone, kObject };  // includeObject

// A Table with one row an object. Built-in kinds (pods, nodes, events, ...) have the columns and
// cells of kube-apiserver's printers; others those of `columns`, after NAME, and AGE where there
// are none. `resource_version` and `continue_token` are those of the list, empty where there is
// none.
struct TableRequest {
  std::string_view api_version;
  std::string_view kind;
  const std::vector<TableColumn>* columns = nullptr;  // of a custom resource
  TableRows rows = TableRows::kMetadata;
  bool with_headers = true;  // the later events of a watch have none
  std::string resource_version;
  std::string continue_token;
  WallTime now;
};
Json make_table(const TableRequest& request, const std::vector<const Json*>& objects);

}  // namespace lockstep::local
