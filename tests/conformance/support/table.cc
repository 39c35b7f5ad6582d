#include "tests/conformance/support/table.h"

#include <fstream>
#include <sstream>

namespace lockstep::conformance {
namespace {

constexpr char kDocument[] = LOCKSTEP_SOURCE_DIR "/docs/api-server.md";

std::string trimmed(const std::string& text) {
  size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// Splits `| a | b | c |` into its cells.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line.substr(1));
  for (std::string cell; std::getline(text, cell, '|');) cells.push_back(trimmed(cell));
  return cells;
}

std::vector<std::string> each_quoted(const std::string& cell) {
  std::vector<std::string> found;
  size_t begin = 0;
  while ((begin = cell.find('`', begin)) != std::string::npos) {
    size_t end = cell.find('`', begin + 1);
    if (end == std::string::npos) break;
    found.push_back(cell.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
  return found;
}

}  // namespace

Result<std::vector<TableRow>> parse_table(const std::string& markdown) {
  std::vector<TableRow> rows;
  std::istringstream text(markdown);
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (!line.starts_with('|') || line.starts_with("|---") || line.starts_with("| What |"))
      continue;
    const std::string where = "[table] line " + std::to_string(number) + ": ";
    std::vector<std::string> cells = cells_of(line);
    if (cells.size() != 3)
      return invalid(where + "expected 3 cells, found " + std::to_string(cells.size()));
    TableRow row{.what = cells[0], .supported = cells[1] == "yes", .cases = each_quoted(cells[2])};
    if (!row.supported) {
      if (!cells[1].starts_with("no: "))
        return invalid(where + "expected `yes` or `no: REASON`, found \"" + cells[1] + "\"");
      row.reason = cells[1].substr(4);
    }
    if (row.supported && row.cases.empty())
      return invalid(where + "expected at least one case, found none");
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<std::vector<TableRow>> read_table() {
  std::ifstream file(kDocument);
  if (!file) return not_found(std::string("[table] can't read ") + kDocument);
  std::ostringstream text;
  text << file.rdbuf();
  return parse_table(text.str());
}

std::string reason_not_supported(const std::string& case_name) {
  static const Result<std::vector<TableRow>> kTable = read_table();
  if (!kTable.ok()) return "";
  for (const TableRow& row : *kTable) {
    for (const std::string& one : row.cases) {
      if (one == case_name && !row.supported) return row.reason;
    }
  }
  return "";
}

}  // namespace lockstep::conformance
