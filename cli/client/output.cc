#include "cli/client/output.h"

#include <algorithm>
#include <cctype>

#include "common/api/yaml.h"

namespace lockstep::cli {
namespace {

// Returns one line without control characters: text from a server must not control the terminal.
std::string cell_text(const Json& cell) {
  std::string text = cell.is_string() ? cell.get<std::string>()
                     : cell.is_null() ? ""
                                      : dump_json(cell);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

const Json& empty_list() {
  static const Json list = Json::array();
  return list;
}

const Json& list_member(const Json& object, const char* key) {
  const Json* value = find_member(object, key);
  return value != nullptr && value->is_array() ? *value : empty_list();
}

std::string metadata_text(const Json& object, const char* key) {
  const Json* meta = find_member(object, "metadata");
  return meta == nullptr ? "" : string_or(*meta, key, "");
}

std::string name_line(const Json& object) {
  std::string kind = string_or(object, "kind", "TrainingJob");
  for (char& c : kind) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::string version = string_or(object, "apiVersion", "");
  const size_t slash = version.find('/');
  const std::string group = slash == std::string::npos ? "" : "." + version.substr(0, slash);
  return kind + group + "/" + metadata_text(object, "name") + "\n";
}

}  // namespace

Result<OutputFormat> output_format(const std::string& text) {
  if (text.empty()) return OutputFormat::kTable;
  if (text == "wide") return OutputFormat::kWide;
  if (text == "json") return OutputFormat::kJson;
  if (text == "yaml") return OutputFormat::kYaml;
  if (text == "name") return OutputFormat::kName;
  return invalid("-o: found \"" + text + "\", expected json, yaml, wide or name");
}

std::vector<std::vector<std::string>> table_rows(const Json& table, const TableView& view) {
  std::vector<bool> shown;
  std::vector<std::string> header;
  for (const Json& column : list_member(table, "columnDefinitions")) {
    shown.push_back(view.is_wide || int_or(column, "priority", 0) == 0);
    if (shown.back()) header.push_back(upper(string_or(column, "name", "")));
  }
  std::vector<std::vector<std::string>> rows;
  if (view.with_header && !header.empty()) {
    if (view.with_namespace) header.insert(header.begin(), "NAMESPACE");
    rows.push_back(std::move(header));
  }
  for (const Json& row : list_member(table, "rows")) {
    std::vector<std::string> cells;
    const Json* object = find_member(row, "object");
    if (view.with_namespace) {
      cells.push_back(object == nullptr ? "" : metadata_text(*object, "namespace"));
    }
    const Json& values = list_member(row, "cells");
    for (size_t i = 0; i < values.size(); ++i) {
      if (shown.empty() || (i < shown.size() && shown[i])) cells.push_back(cell_text(values[i]));
    }
    rows.push_back(std::move(cells));
  }
  return rows;
}

std::vector<std::vector<std::string>> list_rows(const Json& list, const TableView& view,
                                                WallTime now) {
  std::vector<std::vector<std::string>> rows;
  if (view.with_header) rows.push_back({"NAMESPACE", "NAME", "AGE"});
  for (const Json& item : list_member(list, "items")) {
    rows.push_back({metadata_text(item, "namespace"), metadata_text(item, "name"),
                    age_of(metadata_text(item, "creationTimestamp"), now)});
  }
  if (!view.with_namespace) {
    for (auto& row : rows) row.erase(row.begin());
  }
  return rows;
}

std::string document_text(const Json& document, OutputFormat format) {
  if (format == OutputFormat::kYaml) return yaml_from_json(document);
  if (format == OutputFormat::kJson) {
    return document.dump(4, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  if (!document.contains("items")) return name_line(document);
  std::string out;
  for (const Json& item : list_member(document, "items")) out += name_line(item);
  return out;
}

std::string age_text(Duration age) {
  const int64_t s = std::max<int64_t>(0, static_cast<int64_t>(to_seconds(age)));
  const auto two = [](int64_t big, const char* a, int64_t small, const char* b) {
    return std::to_string(big) + a + (small == 0 ? "" : std::to_string(small) + b);
  };
  const int64_t m = s / 60, h = s / 3600, d = s / 86400;
  if (s < 120) return std::to_string(s) + "s";
  if (m < 10) return two(m, "m", s % 60, "s");
  if (h < 3) return std::to_string(m) + "m";
  if (h < 8) return two(h, "h", m % 60, "m");
  if (h < 48) return std::to_string(h) + "h";
  if (d < 8) return two(d, "d", h % 24, "h");
  if (d < 730) return std::to_string(d) + "d";
  if (d < 365 * 8) return two(d / 365, "y", d % 365, "d");
  return std::to_string(d / 365) + "y";
}

std::string age_of(const std::string& time, WallTime now) {
  const Result<WallTime> then = wall_time_from_rfc3339(time);
  return then.ok() ? age_text(now - *then) : "<unknown>";
}

}  // namespace lockstep::cli
