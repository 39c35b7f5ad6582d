// Checks docs/client-semantics.md, which says which behaviours hold and names their tests.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::semantics {
namespace {

const std::filesystem::path kSource = LOCKSTEP_SOURCE_DIR;

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A row of the table: `| 1 | what | where | tests |`
struct Row {
  std::string number;
  bool holds = false;
  std::vector<std::string> tests;
};

std::vector<Row> rows() {
  std::vector<Row> found;
  std::istringstream text(read(kSource / "docs" / "client-semantics.md"));
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("| ") || line.starts_with("| Row")) continue;
    std::vector<std::string> cells;
    std::istringstream cell_text(line.substr(1));
    for (std::string cell; std::getline(cell_text, cell, '|');) cells.push_back(cell);
    EXPECT_EQ(cells.size(), 4u) << line;
    if (cells.size() != 4) continue;
    Row row{.number = cells[0].substr(1, cells[0].size() - 2)};
    row.holds = cells[2] == " any server " || cells[2] == " unit ";
    EXPECT_TRUE(row.holds || cells[2] == " doesn't apply ") << line;
    for (size_t begin = 0; (begin = cells[3].find('`', begin)) != std::string::npos;) {
      const size_t end = cells[3].find('`', begin + 1);
      row.tests.push_back(cells[3].substr(begin + 1, end - begin - 1));
      begin = end + 1;
    }
    found.push_back(std::move(row));
  }
  return found;
}

// Returns the names of this program's tests.
std::set<std::string> registered() {
  std::set<std::string> found;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    if (std::string(suite.name()) == "SemanticsTable") continue;
    for (int t = 0; t < suite.total_test_count(); ++t)
      found.insert(std::string(suite.name()) + "." + suite.GetTestInfo(t)->name());
  }
  return found;
}

// Returns whether tests/controller has a test of that name, which needs no server.
bool is_unit_test(const std::string& name) {
  static const std::string kText = [] {
    std::string text;
    const auto folder = kSource / "tests" / "controller";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.path().extension() == ".cc") text += read(entry.path());
    return text;
  }();
  const size_t dot = name.find('.');
  const std::string arguments = "(" + name.substr(0, dot) + ", " + name.substr(dot + 1) + ")";
  return kText.find("TEST" + arguments) != std::string::npos ||
         kText.find("TEST_F" + arguments) != std::string::npos;
}

TEST(SemanticsTable, HasEveryRowOnceAndNamesOnlyTestsThatThereAre) {
  const std::set<std::string> cases = registered();
  std::set<std::string> named;
  int number = 0;
  for (const Row& row : rows()) {
    EXPECT_EQ(row.number, std::to_string(++number));
    EXPECT_TRUE(!row.holds || !row.tests.empty()) << row.number;
    for (const std::string& test : row.tests) {
      EXPECT_TRUE(cases.contains(test) || is_unit_test(test))
          << test << " is in the table but is no test";
      named.insert(test);
    }
  }
  EXPECT_EQ(number, 31);
  for (const std::string& one : cases)
    EXPECT_TRUE(named.contains(one))
        << one << " is missing in the tables of docs/client-semantics.md";
}

TEST(SemanticsTable, CountsWhatHoldsRightlyThereAndInTheStatusDocument) {
  size_t holding = 0;
  const std::vector<Row> all = rows();
  for (const Row& row : all) holding += row.holds;
  const std::string words = std::to_string(holding) + " of " + std::to_string(all.size());
  EXPECT_NE(read(kSource / "docs" / "client-semantics.md").find("\n" + words + " hold"),
            std::string::npos)
      << words;
  EXPECT_NE(read(kSource / "docs" / "status.md").find(words), std::string::npos) << words;
}

}  // namespace
}  // namespace lockstep::semantics
