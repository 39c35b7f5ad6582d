// Tables of docs/formats.md, for tests that compare them with the code.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::test {

// Returns the cells of one line of a table, without the marks of code.
inline std::vector<std::string> cells_of(std::string line) {
  std::erase(line, '`');
  std::vector<std::string> cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const size_t begin = cell.find_first_not_of(' ');
    const size_t end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end + 1 - begin));
  }
  return cells;
}

// Returns the rows of the first table under a heading of docs/formats.md, without its head.
inline std::vector<std::vector<std::string>> format_table(std::string_view heading) {
  std::ifstream in(LOCKSTEP_SOURCE_DIR "/docs/formats.md");
  std::vector<std::vector<std::string>> rows;
  bool is_under = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) is_under = line.substr(line.find(' ') + 1) == heading;
    if (is_under && line.starts_with("|")) rows.push_back(cells_of(line));
    if (!rows.empty() && !line.starts_with("|")) break;
  }
  EXPECT_GT(rows.size(), 2u) << "no table under " << heading;
  rows.erase(rows.begin(),
             rows.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(2, rows.size())));
  return rows;
}

// Returns the names in the first column; a cell may have several, with commas.
inline std::set<std::string> format_members(std::string_view heading) {
  std::set<std::string> names;
  for (const std::vector<std::string>& row : format_table(heading)) {
    std::istringstream in(row.front());
    for (std::string name; in >> name;) {
      if (name.ends_with(',')) name.pop_back();
      EXPECT_TRUE(names.insert(name).second) << name;
    }
  }
  return names;
}

// The bytes of a value, as memory and messages have them.
template <class T>
std::string raw(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Expects that the table's fields follow each other, cover `memory`, and have these bytes there.
// Fields of type `zeros` are zero; all others are expected by name.
inline void expect_format(std::string_view heading, std::string_view memory,
                          const std::map<std::string, std::string>& expected) {
  size_t at = 0;
  size_t found = 0;
  for (const std::vector<std::string>& row : format_table(heading)) {
    const std::string what = std::string(heading) + ", " + row.at(3);
    ASSERT_EQ(std::stoul(row.at(0)), at) << what;
    const size_t bytes = std::stoul(row.at(1));
    at += bytes;
    ASSERT_LE(at, memory.size()) << what;
    const std::string_view here = memory.substr(at - bytes, bytes);
    if (row.at(2) == "zeros") {
      EXPECT_EQ(here, std::string(bytes, '\0')) << what;
      continue;
    }
    const auto wanted = expected.find(row.at(3));
    ASSERT_NE(wanted, expected.end()) << what << " is not expected";
    std::string padded = wanted->second;
    if (row.at(2) == "text") padded.resize(bytes);
    EXPECT_TRUE(here == padded) << what;
    ++found;
  }
  EXPECT_EQ(at, memory.size()) << heading;
  EXPECT_EQ(found, expected.size()) << heading << " lacks a field";
}

}  // namespace lockstep::test
