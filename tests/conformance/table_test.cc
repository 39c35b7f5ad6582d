// Checks docs/api-server.md, which says what the embedded server supports.
#include "tests/conformance/support/table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace lockstep::conformance {
namespace {

std::set<std::string> registered_cases() {
  std::set<std::string> found;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t)
      found.insert(std::string(suite.name()) + "." + suite.GetTestInfo(t)->name());
  }
  std::erase_if(found, [](const std::string& name) {
    return name.starts_with("SupportTable.") || name.starts_with("Suite.");
  });
  return found;
}

TEST(SupportTable, NamesEveryCaseOnceAndNoneThatIsNotThere) {
  Result<std::vector<TableRow>> table = read_table();
  ASSERT_TRUE(table.ok()) << table.error().message;
  std::set<std::string> cases = registered_cases();
  std::map<std::string, int> named;
  for (const TableRow& row : *table)
    for (const std::string& one : row.cases) ++named[one];
  for (const auto& [name, count] : named) {
    EXPECT_TRUE(cases.contains(name)) << name << " is in docs/api-server.md but not in the suite";
    EXPECT_EQ(count, 1) << name << " is in several rows of docs/api-server.md";
  }
  for (const std::string& name : cases)
    EXPECT_TRUE(named.contains(name)) << name << " is missing in the tables of docs/api-server.md";
}

TEST(SupportTable, RefusesRowsWithoutCasesAndWithoutReasons) {
  EXPECT_TRUE(
      parse_table("| What | Supported | Cases |\n|---|---|---|\n| a | yes | `A.B` |\n").ok());
  EXPECT_TRUE(parse_table("| a | no: too much | |\n").ok());
  EXPECT_FALSE(parse_table("| a | yes | |\n").ok());
  EXPECT_FALSE(parse_table("| a | no | `A.B` |\n").ok());
  EXPECT_FALSE(parse_table("| a | yes |\n").ok());
}

}  // namespace
}  // namespace lockstep::conformance
