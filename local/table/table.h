#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep::local {

// meta.k8s.io/v1 Table, the format that `kubectl get` requests.
// Source: Kubernetes, "API concepts: receiving resources as Tables".

struct TableColumn {
  std::string name;
  std::string type = "string";  // string, integer, number, boolean, date
  std::string format;           // "name" for the first one
  std::string description;
  std::string json_path;  // from a CRD's additionalPrinterColumns: ".status.state"
  int priority = 0;       // above 0: only in wide output
};

enum class TableRows { kMetadata, kNone, kObject };  // includeObject

// A Table with one row per object. Built-in kinds (pods, nodes, events, ...) have the columns and
// cells of kube-apiserver's printers. Other kinds have NAME and `columns`, or NAME and AGE without
// `columns`. `resource_version` and `continue_token` are those of the list, or empty.
struct TableRequest {
  std::string_view api_version;
  std::string_view kind;
  const std::vector<TableColumn>* columns = nullptr;  // for a custom resource
  TableRows rows = TableRows::kMetadata;
  bool with_headers = true;  // false for later events of a watch
  std::string resource_version;
  std::string continue_token;
  WallTime now;
};
Json make_table(const TableRequest& request, const std::vector<const Json*>& objects);

}  // namespace lockstep::local
