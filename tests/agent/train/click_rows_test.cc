#include "agent/train/clicks/click_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "agent/train/clicks/click_generator.h"
#include "agent/train/clicks/click_log.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

// A line of the criteo format whose columns are empty but for these.
std::string criteo_line(const std::string& label,
                        const std::vector<std::pair<int, std::string>>& columns) {
  std::string line = label;
  for (int column = 1; column <= kCriteoNumbers + kCriteoCategories; ++column) {
    line += '\t';
    for (const auto& [at, text] : columns) line += at == column ? text : "";
  }
  return line;
}

ClickRows rows_of(ClickFormat format, const std::vector<std::string>& lines) {
  ClickRows rows;
  for (const std::string& line : lines) {
    const Status added = add_click_row(format, line, rows);
    EXPECT_TRUE(added.ok()) << added.error().message;
  }
  return rows;
}

TEST(ClickRows, HashTheColumnAndTextOfCriteosFeatures) {
  const ClickRows rows = rows_of(ClickFormat::kCriteo,
                                 {criteo_line("1", {{1, "2"}, {14, "68fd1e64"}, {15, "68fd1e64"}}),
                                  criteo_line("0", {{2, "2"}, {14, "68fd1e64"}}) + "\r"});
  EXPECT_EQ(rows.labels, (std::vector<float>{1, 0}));
  EXPECT_EQ(rows.row_begin, (std::vector<uint32_t>{0, 3, 5}));
  EXPECT_EQ(rows.values, std::vector<float>(5, 1.0f));
  EXPECT_EQ(rows.columns, (std::vector<uint32_t>{0, 13, 14, 1, 13}));
  EXPECT_EQ(rows.keys[1], criteo_key(14, "68fd1e64"));
  EXPECT_EQ(rows.keys[4], rows.keys[1]);
  EXPECT_NE(rows.keys[2], rows.keys[1]) << "another column";
  EXPECT_NE(rows.keys[3], rows.keys[0]) << "another column";
}

TEST(ClickRows, PutLargeNumbersOfCriteoIntoCategories) {
  // floor(log(v)^2): 21 for both, and 22.
  const ClickRows rows =
      rows_of(ClickFormat::kCriteo, {criteo_line("0", {{1, "100"}}), criteo_line("0", {{1, "105"}}),
                                     criteo_line("0", {{1, "115"}}), criteo_line("0", {{1, "-2"}}),
                                     criteo_line("0", {{1, "21"}})});
  EXPECT_EQ(rows.keys[0], rows.keys[1]);
  EXPECT_NE(rows.keys[0], rows.keys[2]);
  EXPECT_EQ(rows.keys[3], criteo_key(1, "-2"));
  EXPECT_NE(rows.keys[4], rows.keys[0]) << "21 is no category of 21";
}

TEST(ClickRows, ReadIndicesAndValuesOfLibsvm) {
  const ClickRows rows =
      rows_of(ClickFormat::kLibsvm, {"+1 1:0.5 7:-2e-1", "-1", "0 0:1  # a comment", "1.0 3:1"});
  EXPECT_EQ(rows.labels, (std::vector<float>{1, 0, 0, 1}));
  EXPECT_EQ(rows.row_begin, (std::vector<uint32_t>{0, 2, 2, 3, 4}));
  EXPECT_EQ(rows.keys, (std::vector<uint64_t>{1, 7, 0, 3}));
  EXPECT_EQ(rows.values, (std::vector<float>{0.5f, -0.2f, 1, 1}));
}

TEST(ClickRows, RefuseBrokenLinesWithTheirReason) {
  const struct {
    ClickFormat format;
    std::string line;
    std::string reason;
  } cases[] = {
      {ClickFormat::kCriteo, "", "it is empty"},
      {ClickFormat::kCriteo, "1", "found 1 columns, expected 40"},
      {ClickFormat::kCriteo, criteo_line("1", {}) + "\t", "found more than 40 columns"},
      {ClickFormat::kCriteo, criteo_line("2", {}), "column 1 is \"2\", expected 0 or 1"},
      {ClickFormat::kCriteo, criteo_line("1", {{3, "x"}}),
       "column 4 is \"x\", expected a whole number"},
      {ClickFormat::kCriteo, criteo_line("1", {{13, "1.5"}}), "column 14 is \"1.5\""},
      {ClickFormat::kCriteo, criteo_line("1", {{1, "99999999999999999999"}}), "column 2"},
      {ClickFormat::kLibsvm, "", "it is empty"},
      {ClickFormat::kLibsvm, "2 1:1", "the label is \"2\""},
      {ClickFormat::kLibsvm, "nan 1:1", "the label is \"nan\""},
      {ClickFormat::kLibsvm, "1 1", "found \"1\", expected index:value"},
      {ClickFormat::kLibsvm, "1 1:", "found \"1:\""},
      {ClickFormat::kLibsvm, "1 1:inf", "found \"1:inf\""},
      {ClickFormat::kLibsvm, "1 -1:1", "found \"-1:1\""},
      {ClickFormat::kLibsvm, "1 +-1:1", "found \"+-1:1\""},
      {ClickFormat::kLibsvm, "1 2:1 2:1", "index 2 comes after 2"},
      {ClickFormat::kLibsvm, "1 18446744073709551616:1", "found"},
      {ClickFormat::kLibsvm, std::string(kClickLineBytesMax + 1, '1'), "it has more than"}};
  for (const auto& test : cases) {
    SCOPED_TRACE(test.line.substr(0, 60));
    ClickRows rows = rows_of(ClickFormat::kLibsvm, {"1 5:1"});
    const Status added = add_click_row(test.format, test.line, rows);
    ASSERT_FALSE(added.ok());
    EXPECT_EQ(added.error().code, Code::kInvalid);
    EXPECT_NE(added.error().message.find(test.reason), std::string::npos) << added.error().message;
    EXPECT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows.keys.size(), 1u);
    EXPECT_EQ(rows.values.size(), 1u);
    EXPECT_EQ(rows.columns.size(), 1u);
    EXPECT_EQ(rows.row_begin.size(), 2u);
  }
}

DataSpec log_of(const std::string& path, double validation = 0) {
  DataSpec data;
  data.path = path;
  data.format = "libsvm";
  data.validationFraction = validation;
  return data;
}

std::string lines_of(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "1 " + std::to_string(i) + ":1\n";
  return text;
}

class ClickLogTest : public testing::Test {
 protected:
  std::vector<uint64_t> read(ClickReader& reader, int64_t batch, int64_t begin, int64_t end) {
    ClickRows rows;
    const Status done = reader.read(batch, begin, end, rows);
    EXPECT_TRUE(done.ok()) << done.error().message;
    return rows.keys;
  }
  TemporaryFolder folder_;
};

TEST_F(ClickLogTest, ReadsEachRanksShareAndBeginsAnew) {
  const auto log = ClickLog::open(log_of(folder_.write("log", lines_of(5))));
  ASSERT_TRUE(log.ok()) << log.error().message;
  ClickReader first(*log, (*log)->training());
  ClickReader second(*log, (*log)->training());
  EXPECT_EQ(read(first, 4, 0, 2), (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(read(second, 4, 2, 4), (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(read(first, 4, 0, 2), (std::vector<uint64_t>{4, 0}));
  EXPECT_EQ(read(second, 4, 2, 4), (std::vector<uint64_t>{1, 2}));
}

TEST_F(ClickLogTest, SkipsAsManyRowsAsItWouldRead) {
  const auto log = ClickLog::open(log_of(folder_.write("log", lines_of(5))));
  ASSERT_TRUE(log.ok());
  for (const int64_t rows : {0, 1, 4, 5, 6, 10, 12, 1'000'000'003}) {
    ClickReader reader(*log, (*log)->training());
    reader.skip(rows);
    EXPECT_EQ(read(reader, 1, 0, 1), (std::vector<uint64_t>{static_cast<uint64_t>(rows % 5)}))
        << rows;
  }
}

TEST_F(ClickLogTest, HoldsTheEndBackForValidation) {
  // Lines of 6 bytes; the last one has no line break.
  const std::string path = folder_.write("log", "1 0:1\n1 1:1\n1 2:1\n1 3:1");
  const auto log = ClickLog::open(log_of(path, 0.3));
  ASSERT_TRUE(log.ok());
  EXPECT_EQ((*log)->training(), "1 0:1\n1 1:1\n1 2:1\n");
  ClickReader reader(*log, (*log)->validation());
  ClickRows rows;
  ASSERT_TRUE(reader.read_on(10, rows).ok());
  EXPECT_EQ(rows.keys, (std::vector<uint64_t>{3}));
  ASSERT_TRUE(reader.read_on(10, rows).ok());
  EXPECT_EQ(rows.size(), 1u) << "the part is over";
}

TEST_F(ClickLogTest, NamesTheLineThatIsBroken) {
  const std::string path = folder_.write("log", "1 0:1\n1 1:1\nx\n1 3:1\n");
  const auto log = ClickLog::open(log_of(path));
  ASSERT_TRUE(log.ok());
  ClickReader reader(*log, (*log)->training());
  ClickRows rows;
  const Status done = reader.read(4, 0, 4, rows);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message,
            "[data] " + path + ", line 3: the label is \"x\", expected 0, 1 or -1");
  EXPECT_EQ(done.error().blame, Blame::kData);
}

TEST_F(ClickLogTest, RefusesFilesWithoutLines) {
  const auto empty = ClickLog::open(log_of(folder_.write("log", "")));
  ASSERT_FALSE(empty.ok());
  EXPECT_NE(empty.error().message.find("expected a line to train on"), std::string::npos);
  const auto short_one = ClickLog::open(log_of(folder_.write("short", "1 0:1\n"), 0.5));
  ASSERT_FALSE(short_one.ok());
  EXPECT_NE(short_one.error().message.find("expected a line held back"), std::string::npos);
  EXPECT_FALSE(ClickLog::open(log_of(folder_.file("none"))).ok());
}

TEST_F(ClickLogTest, IsGeneratedFromAKnownModel) {
  const ClickGeneratorOptions options{
      .path = folder_.file("log"), .rows = 3000, .keys = 10000, .seed = 3};
  const auto made = generate_clicks(options);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const std::string text = read_file(options.path);
  ASSERT_TRUE(generate_clicks(options).ok());
  EXPECT_EQ(read_file(options.path), text) << "another log with the same seed";
  DataSpec data = log_of(options.path);
  data.format = "criteo";
  const auto log = ClickLog::open(data);
  ASSERT_TRUE(log.ok());
  ClickReader reader(*log, (*log)->training());
  ClickRows rows;
  ASSERT_TRUE(reader.read_on(5000, rows).ok());
  EXPECT_EQ(rows.size(), 3000u);
  EXPECT_EQ(rows.keys.size(), 3000u * 39);
  int64_t clicks = 0;
  for (const float label : rows.labels) clicks += label > 0 ? 1 : 0;
  EXPECT_EQ(clicks, made->clicks);
  // The true model is better than the share of clicks.
  const double share = static_cast<double>(clicks) / 3000;
  EXPECT_LT(made->log_loss, -share * std::log(share) - (1 - share) * std::log(1 - share));
  EXPECT_GT(made->log_loss, 0);
}

}  // namespace
}  // namespace lockstep::train
