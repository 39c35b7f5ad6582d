#include "local/table/table.h"

#include <cmath>
#include <optional>

#include "local/table/built_in_rows.h"
#include "local/table/human_duration.h"
#include "local/table/json_path.h"
#include "local/table/lookup.h"

namespace lockstep::local {
namespace {

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

const std::vector<TableColumn>& age_alone() {
  static const std::vector<TableColumn> columns = {
      {.name = "Age",
       .type = "date",
       .description = "Time since the object was created.",
       .json_path = ".metadata.creationTimestamp"}};
  return columns;
}

// Returns whole numbers as integers, so that clients print 412000 and not 4.12e+05.
Json number_cell(const Json& value) {
  if (value.is_number_integer()) return value;
  double number = value.get<double>();
  if (std::isfinite(number) && number == std::trunc(number) && std::abs(number) < kExactIntegers)
    return static_cast<int64_t>(number);
  return number;
}

Json integer_cell(const Json& value) {
  if (value.is_number_integer()) return value;
  double number = std::trunc(value.get<double>());
  if (!(std::abs(number) < kExactIntegers)) return nullptr;
  return static_cast<int64_t>(number);
}

Json date_cell(const std::string& text, WallTime now) {
  if (text.empty()) return "<unknown>";
  Result<WallTime> time = wall_time_from_rfc3339(text);
  return time.ok() ? human_duration(now - *time) : "<invalid>";
}

// Returns the value as a cell of the column's type. A value of another type becomes null, which
// prints as nothing.
Json custom_cell(const TableColumn& column, const Json& value, WallTime now) {
  if (value.is_null()) return nullptr;
  if (column.type == "string") return value.is_string() ? value : Json(dump_json(value));
  if (column.type == "integer") return value.is_number() ? integer_cell(value) : Json();
  if (column.type == "number") return value.is_number() ? number_cell(value) : Json();
  if (column.type == "boolean") return value.is_boolean() ? value : Json();
  if (column.type == "date" && value.is_string())
    return date_cell(value.get_ref<const std::string&>(), now);
  return nullptr;
}

// Prints the objects of one table; compiles the paths of custom columns only once.
class Rows {
 public:
  explicit Rows(const TableRequest& request)
      : request_(request), built_in_(find_row_printer(request.api_version, request.kind)) {
    if (built_in_ != nullptr) {
      columns_ = built_in_->columns;
      return;
    }
    bool none = request.columns == nullptr || request.columns->empty();
    const std::vector<TableColumn>& custom = none ? age_alone() : *request.columns;
    columns_.push_back({.name = "Name", .format = "name", .description = "The object's name."});
    for (const TableColumn& column : custom) {
      columns_.push_back(column);
      Result<JsonPath> path = JsonPath::parse(column.json_path);
      paths_.push_back(path.ok() ? std::optional(std::move(*path)) : std::nullopt);
    }
  }

  Json definitions() const {
    Json definitions = Json::array();
    for (const TableColumn& column : columns_) {
      bool described = !column.description.empty() || column.json_path.empty();
      definitions.push_back({{"name", column.name},
                             {"type", column.type},
                             {"format", column.format},
                             {"description", described ? column.description
                                                       : "The value at " + column.json_path + "."},
                             {"priority", column.priority}});
    }
    return definitions;
  }

  Json row(const Json& object) const {
    Json cells = built_in_ != nullptr ? built_in_->cells(object, request_.now) : custom(object);
    return {{"cells", std::move(cells)}, {"object", described(object)}};
  }

 private:
  Json custom(const Json& object) const {
    Json cells = Json::array({text_at(object, {"metadata", "name"})});
    for (size_t i = 0; i < paths_.size(); ++i) {
      std::vector<const Json*> found;
      if (paths_[i].has_value()) found = paths_[i]->find(object);
      cells.push_back(found.empty() ? Json()
                                    : custom_cell(columns_[i + 1], *found[0], request_.now));
    }
    return cells;
  }

  Json described(const Json& object) const {
    if (request_.rows == TableRows::kNone) return nullptr;
    if (request_.rows == TableRows::kObject) return object;
    return {{"apiVersion", "meta.k8s.io/v1"},
            {"kind", "PartialObjectMetadata"},
            {"metadata", value_at(object, {"metadata"})}};
  }

  const TableRequest& request_;
  const RowPrinter* built_in_;
  std::vector<TableColumn> columns_;
  std::vector<std::optional<JsonPath>> paths_;  // of the columns after the name
};

}  // namespace

Json make_table(const TableRequest& request, const std::vector<const Json*>& objects) {
  Rows rows(request);
  Json metadata = Json::object();
  if (!request.resource_version.empty()) metadata["resourceVersion"] = request.resource_version;
  if (!request.continue_token.empty()) metadata["continue"] = request.continue_token;
  Json list = Json::array();
  for (const Json* object : objects) list.push_back(rows.row(*object));
  return {{"apiVersion", "meta.k8s.io/v1"},
          {"kind", "Table"},
          {"metadata", std::move(metadata)},
          {"columnDefinitions", request.with_headers ? rows.definitions() : Json()},
          {"rows", std::move(list)}};
}

}  // namespace lockstep::local
