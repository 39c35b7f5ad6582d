#include "agent/train/metrics_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <vector>

#include "common/base/json.h"
#include "tests/agent/train/temporary_folder.h"
#include "tests/common/api/every_number.h"

namespace lockstep::train {
namespace {

TEST(MetricsFile, WritesALineAStepAndIsCutBackToTheResumedStep) {
  TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  {
    auto file = MetricsFile::open(path, 0);
    ASSERT_TRUE(file.ok());
    for (int64_t step = 1; step <= 4; ++step) {
      file->add({.step = step, .loss = 2.5});
    }
    file->add({.step = 4, .validation_loss = 1.5});
  }
  auto file = MetricsFile::open(path, 3);
  ASSERT_TRUE(file.ok());
  file->add({.step = 3, .validation_loss = 1.75});
  const std::string text = read_file(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_TRUE(text.ends_with("{\"step\":3,\"validationLoss\":1.75}\n")) << text;
}

TEST(MetricsFile, LeavesOutWhatIsNotFinite) {
  TemporaryFolder folder;
  auto file = MetricsFile::open(folder.file("m"), 0);
  ASSERT_TRUE(file.ok());
  file->add({.step = 1, .loss = std::nan(""), .gradient_norm = 1});
  const auto line = parse_json(read_file(folder.file("m")));
  ASSERT_TRUE(line.ok());
  EXPECT_FALSE(line->contains("loss"));
  EXPECT_TRUE(line->contains("gradientNorm"));
}

TEST(MetricsFile, HasEveryNumberThatTheTablePutsThere) {
  TemporaryFolder folder;
  auto file = MetricsFile::open(folder.file("m"), 0);
  ASSERT_TRUE(file.ok());
  file->add(every_number());
  const StepNumbers read = numbers_from_metrics_line(*parse_json(read_file(folder.file("m"))));
  for (const StepNumber& number : step_number_table()) {
    if (number.file.empty()) continue;
    EXPECT_EQ(value_of(number, read), value_of(number, every_number())) << number.file;
  }
}

TEST(MetricsFile, NestsNumbersThatDifferInOneRespect) {
  TemporaryFolder folder;
  auto file = MetricsFile::open(folder.file("m"), 0);
  ASSERT_TRUE(file.ok());
  StepNumbers numbers{.step = 1, .palm_flops_per_second = 8e14, .causal_flops_per_second = 7e14};
  file->add(numbers);
  numbers.step = 2;
  numbers.palm_mfu = 0.4;
  numbers.causal_mfu = 0.35;
  file->add(numbers);
  std::istringstream text(read_file(folder.file("m")));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(*parse_json(line));
  ASSERT_EQ(lines.size(), 2u);
  const Json flops = {{"palm", 8e14}, {"causal", 7e14}};
  EXPECT_EQ(lines[0], (Json{{"step", 1}, {"flopsPerSecond", flops}}));
  EXPECT_EQ(lines[1].at("mfu"), (Json{{"palm", 0.4}, {"causal", 0.35}}));
  const std::string all = read_file(folder.file("m"));
  EXPECT_EQ(metrics_prefix(all, 1).bytes, all.find('\n') + 1);
}

TEST(MetricsPrefix, EndsAtTheFirstLineThatIsBrokenOrLater) {
  EXPECT_EQ(metrics_prefix("", 5).bytes, 0u);
  EXPECT_EQ(metrics_prefix("{\"step\":1}\n{\"step\":2}\n", 1).bytes, 11u);
  EXPECT_EQ(metrics_prefix("{\"step\":1}\n{\"step\":2}\n", 2).bytes, 22u);
  EXPECT_EQ(metrics_prefix("{\"step\":1}\n{\"step\":2", 2).bytes, 11u);
  EXPECT_EQ(metrics_prefix("{\"step\":1}\nrubbish\n{\"step\":1}\n", 2).bytes, 11u);
  EXPECT_EQ(metrics_prefix("{\"loss\":1}\n", 2).bytes, 0u);
}

TEST(MetricsPrefix, EndsBeforeTheValidationOfTheResumedStep) {
  const std::string text = "{\"step\":1}\n{\"step\":1,\"validationLoss\":2.0}\n{\"step\":2}\n";
  EXPECT_EQ(metrics_prefix(text, 1).bytes, 11u);
  EXPECT_EQ(metrics_prefix(text, 2).bytes, text.size());
  EXPECT_EQ(metrics_prefix(text, 1).last_step, 1);
  EXPECT_EQ(metrics_prefix(text, 1, false).last_step, 1);
  EXPECT_EQ(metrics_prefix(text, 0).last_step, 0);
}

}  // namespace
}  // namespace lockstep::train
