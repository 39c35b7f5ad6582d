#include "agent/train/metrics_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <vector>

#include "common/base/json.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

TEST(MetricsFile, WritesALineAStepAndIsCutBackToTheResumedStep) {
  TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  {
    auto file = MetricsFile::open(path, 0);
    ASSERT_TRUE(file.ok());
    for (int64_t step = 1; step <= 4; ++step) {
      ASSERT_TRUE(file->add(StepMetrics{.step = step, .loss = 2.5, .seconds = {}}).ok());
    }
    ASSERT_TRUE(file->add(ValidationMetrics{.step = 4, .loss = 1.5}).ok());
  }
  auto file = MetricsFile::open(path, 3);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->add(ValidationMetrics{.step = 3, .loss = 1.75}).ok());
  const std::string text = read_file(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_TRUE(text.ends_with("{\"step\":3,\"validationLoss\":1.75}\n")) << text;
}

TEST(MetricsFile, LeavesOutWhatIsNotFinite) {
  TemporaryFolder folder;
  auto file = MetricsFile::open(folder.file("m"), 0);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->add(StepMetrics{.step = 1, .loss = std::nan(""), .seconds = {}}).ok());
  const auto line = parse_json(read_file(folder.file("m")));
  ASSERT_TRUE(line.ok());
  EXPECT_FALSE(line->contains("loss"));
  EXPECT_TRUE(line->contains("gradientNorm"));
}

TEST(MetricsFile, SaysFlopsAlwaysAndUtilisationWhereAPeakIsKnown) {
  TemporaryFolder folder;
  auto file = MetricsFile::open(folder.file("m"), 0);
  ASSERT_TRUE(file.ok());
  StepMetrics metrics{.step = 1, .flops = {.palm = 8e14, .causal = 7e14}};
  ASSERT_TRUE(file->add(metrics).ok());
  metrics.step = 2;
  metrics.flops.measured_peak = 1.6e15;
  ASSERT_TRUE(file->add(metrics).ok());
  metrics.step = 3;
  metrics.flops.datasheet_peak = 2e15;
  ASSERT_TRUE(file->add(metrics).ok());
  std::istringstream text(read_file(folder.file("m")));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(*parse_json(line));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].at("flopsPerSecond"), (Json{{"palm", 8e14}, {"causal", 7e14}}));
  EXPECT_FALSE(lines[0].contains("mfu"));
  EXPECT_FALSE(lines[0].contains("mfuOfMeasuredPeak"));
  EXPECT_FALSE(lines[1].contains("mfu"));
  EXPECT_EQ(lines[1].at("mfuOfMeasuredPeak"), (Json{{"palm", 0.5}, {"causal", 0.4375}}));
  EXPECT_EQ(lines[2].at("mfu"), (Json{{"palm", 0.4}, {"causal", 0.35}}));
  EXPECT_EQ(metrics_prefix(read_file(folder.file("m")), 2),
            read_file(folder.file("m")).find("{", read_file(folder.file("m")).rfind("\n{")));
}

TEST(MetricsPrefix, EndsAtTheFirstLineThatIsBrokenOrLater) {
  EXPECT_EQ(metrics_prefix("", 5), 0u);
  EXPECT_EQ(metrics_prefix("{\"step\":1}\n{\"step\":2}\n", 1), 11u);
  EXPECT_EQ(metrics_prefix("{\"step\":1}\n{\"step\":2}\n", 2), 22u);
  EXPECT_EQ(metrics_prefix("{\"step\":1}\n{\"step\":2", 2), 11u);
  EXPECT_EQ(metrics_prefix("{\"step\":1}\nrubbish\n{\"step\":1}\n", 2), 11u);
  EXPECT_EQ(metrics_prefix("{\"loss\":1}\n", 2), 0u);
}

TEST(MetricsPrefix, EndsBeforeTheValidationOfTheResumedStep) {
  const std::string text = "{\"step\":1}\n{\"step\":1,\"validationLoss\":2.0}\n{\"step\":2}\n";
  EXPECT_EQ(metrics_prefix(text, 1), 11u);
  EXPECT_EQ(metrics_prefix(text, 2), text.size());
}

}  // namespace
}  // namespace lockstep::train
