// Progress reports of programs, valid and invalid.
#include "agent/node/program_progress.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/api/step_number_table.h"

namespace lockstep::node {
namespace {

ProgressLines lines_of(const std::string& text) {
  ProgressLines lines;
  lines.append(text);
  return lines;
}

TEST(ProgressLines, BringEachMemberThatTheyHaveUpToDate) {
  const ProgressLines lines = lines_of(
      "{\"step\": 1, \"steps\": 100, \"loss\": 3.5, \"samples\": 64, \"epoch\": 0}\n"
      "\n"
      "{\"step\": 2.0, \"tokens\": 1e3}\r\n");
  EXPECT_EQ(lines.last(),
            (StepNumbers{.step = 2, .steps = 100, .tokens = 1000, .samples = 64, .loss = 3.5}));
  EXPECT_EQ(lines.accepted(), 2u);
  EXPECT_EQ(lines.rejected(), 0u);
}

TEST(ProgressLines, ForgetALossThatIsNotFinite) {
  for (const char* loss : {"NaN", "Infinity", "-Infinity", "null"}) {
    const ProgressLines lines =
        lines_of("{\"step\": 1, \"loss\": 3.5}\n{\"step\": 2, \"loss\": " + std::string(loss) +
                 ", \"note\": \"NaN \\\" NaN\"}\n");
    EXPECT_EQ(lines.last().step, 2) << loss;
    EXPECT_FALSE(lines.last().loss) << loss;
  }
}

TEST(ProgressLines, CountAndPassOverWhatIsNoProgress) {
  const std::string bad[] = {
      "hello",
      "[1, 2]",
      "{\"step\": 5",
      "{\"step\": \"five\"}",
      "{\"step\": -1}",
      "{\"step\": 2.5}",
      "{\"step\": 1e300}",
      "{\"loss\": \"low\"}",
      "{\"loss\": 1e999}",
      "{\"step\": 9, \"loss\": []}",
      "{\"step\": NaNs}",
      std::string("{\"step\":\0}", 10),
      "\xff\xfe",
      std::string(1000, '['),
      "{\"step\": 7, \"x\": \"" + std::string(ProgressLines::kLineBytesMax, 'x') + "\"}"};
  for (const std::string& line : bad) {
    const ProgressLines lines = lines_of("{\"step\": 3}\n" + line + "\n{\"steps\": 4}\n");
    EXPECT_EQ(lines.last().step, 3) << line.substr(0, 40);
    EXPECT_EQ(lines.last().steps, 4) << line.substr(0, 40);
    EXPECT_EQ(lines.rejected(), 1u) << line.substr(0, 40);
    EXPECT_EQ(lines.accepted(), 2u) << line.substr(0, 40);
  }
}

TEST(ProgressLines, DoNotDependOnHowTheyArrive) {
  const std::string text = "{\"step\": 1}\nnoise\n{\"step\": 2, \"loss\": NaN}\n" +
                           std::string(40'000, 'z') + "\n{\"step\": 3}\n";
  for (size_t size : {size_t{1}, size_t{7}, size_t{1000}, text.size()}) {
    ProgressLines lines;
    for (size_t at = 0; at < text.size(); at += size) lines.append(text.substr(at, size));
    EXPECT_EQ(lines.last().step, 3) << size;
    EXPECT_EQ(lines.accepted(), 3u) << size;
    EXPECT_EQ(lines.rejected(), 2u) << size;
  }
}

class ProgressFileTest : public testing::Test {
 protected:
  ProgressFileTest() {
    std::string name = testing::TempDir() + "lockstep-progress-XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/made/rank-0.jsonl";
    file_.emplace(path_);
    EXPECT_TRUE(file_->reset().ok());
  }
  ~ProgressFileTest() override { std::filesystem::remove_all(folder_); }

  void append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }
  std::optional<int64_t> step() const { return file_->lines().last().step; }

  std::string folder_;
  std::string path_;
  std::optional<ProgressFile> file_;
};

TEST_F(ProgressFileTest, ReadsWhatIsAddedAndWaitsForTheEndOfALine) {
  EXPECT_FALSE(file_->poll());
  append("{\"step\": 1}\n{\"st");
  EXPECT_TRUE(file_->poll());
  EXPECT_EQ(step(), 1);
  EXPECT_FALSE(file_->poll());
  append("ep\": 2}\n");
  EXPECT_TRUE(file_->poll());
  EXPECT_EQ(step(), 2);
}

TEST_F(ProgressFileTest, BeginsAnewWithAFileThatWasCutBackReplacedOrRemoved) {
  append("{\"step\": 10, \"steps\": 100}\n{\"par");
  file_->poll();
  std::ofstream(path_) << "{\"step\": 1}\n";
  EXPECT_TRUE(file_->poll());
  EXPECT_EQ(step(), 1);
  std::ofstream(path_ + ".new") << "{\"step\": 2, \"note\": \"as long as it likes\"}\n";
  std::filesystem::rename(path_ + ".new", path_);
  EXPECT_TRUE(file_->poll());
  EXPECT_EQ(step(), 2);
  std::filesystem::remove(path_);
  EXPECT_FALSE(file_->poll());
  append("{\"step\": 3}\n");
  EXPECT_TRUE(file_->poll());
  EXPECT_EQ(step(), 3);
  EXPECT_EQ(file_->lines().last().steps, 100);
}

TEST_F(ProgressFileTest, NeverWaitsForWhatIsNoFile) {
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(file_->poll());
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_FALSE(file_->poll());
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/dev/zero", path_);
  EXPECT_FALSE(file_->poll());
}

TEST_F(ProgressFileTest, JoinsAWriterThatRunsAwayNearTheEnd) {
  std::string text;
  for (int step = 0; text.size() < 20u << 20; ++step) {
    text += "{\"step\": " + std::to_string(step) + "}\n";
  }
  append(text + "{\"step\": 999999999}\n");
  int polls = 0;
  while (file_->poll()) ++polls;
  EXPECT_EQ(step(), 999999999);
  EXPECT_LE(polls, 3);
  EXPECT_EQ(file_->lines().rejected(), 0u) << "half a line is not counted against it";
}

TEST(GrowthRate, IsThatOfTheLastSecondsAndBeginsAnewWhenTheCountFalls) {
  const TimePoint start{std::chrono::hours(1)};
  const auto after = [&](double seconds) { return start + from_seconds(seconds); };
  GrowthRate rate;
  EXPECT_FALSE(rate.per_second());
  rate.add(100, after(0));
  EXPECT_FALSE(rate.per_second());
  rate.add(200, after(2));
  EXPECT_DOUBLE_EQ(*rate.per_second(), 50);
  rate.add(200, after(3));  // no change
  EXPECT_DOUBLE_EQ(*rate.per_second(), 50);
  rate.add(1000, after(10));
  rate.add(2000, after(20));
  EXPECT_DOUBLE_EQ(*rate.per_second(), 100) << "the first seconds count no more";
  rate.add(50, after(21));
  EXPECT_FALSE(rate.per_second());
  rate.add(60, after(22));
  EXPECT_DOUBLE_EQ(*rate.per_second(), 10);
}

TEST(NodeProgress, TakesStepAndLossOfTheLowestRankAndAddsCountsUp) {
  const std::vector<StepNumbers> ranks = {
      {.samples = 5},
      {.step = 7, .steps = 9, .samples = 10, .loss = 2.5, .samples_per_second = 3},
      {.step = 8, .tokens = 40, .samples = 10, .loss = 1.5, .samples_per_second = 4}};
  const ProgressStatus status = progress_of_node(ranks, WallTime{});
  EXPECT_EQ(status.step, 7);
  EXPECT_EQ(status.steps, 9);
  EXPECT_EQ(status.loss, 2.5);
  EXPECT_EQ(status.samples, 25);
  EXPECT_EQ(status.tokens, 40);
  EXPECT_EQ(status.samples_per_second, 7);
  EXPECT_FALSE(status.tokens_per_second);
  StepNumbers most;
  most.samples = most.tokens = int64_t{1} << 53;
  const StepNumbers same = most;
  add_counts(same, most);
  EXPECT_EQ(most.samples, int64_t{1} << 53) << "no more than the API's integers hold";
}

}  // namespace
}  // namespace lockstep::node
