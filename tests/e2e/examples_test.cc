// The examples do what they are there for: each is run as it is, but for its size.
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "tests/support/job_run.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

// Trips where the example no longer has the text.
void replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  CHECK(at != std::string::npos);
  text.replace(at, from.size(), to);
}

std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t from = text.find(before);
  CHECK(from != std::string::npos);
  const size_t begin = from + before.size();
  return text.substr(begin, text.find(after, begin) - begin);
}

TEST(ExamplesTest, KjvGptTrainsToComplete) {
  std::string text = read_file(fs::path(LOCKSTEP_SOURCE_DIR) / "examples/kjv-gpt.yaml");
  replace(text, "steps: " + between(text, "    steps: ", "\n") + "\n", "steps: 6\n");
  replace(text, "validation: {everySteps: 500}", "validation: {everySteps: 3}");
  replace(text, "checkpoint: {everySteps: 500}", "checkpoint: {everySteps: 3}");
  replace(text, "warmupSteps: 100", "warmupSteps: 2");
  replace(text, "tokens: 400", "tokens: 20");
  const TemporaryFolder folder;
  const fs::path job = folder.path() / "examples/kjv-gpt.yaml";
  const fs::path data = job.parent_path() / between(text, "data: {path: ", ",");
  fs::create_directories(job.parent_path());
  fs::create_directories(data.lexically_normal().parent_path());
  write_file(job, text);
  write_file(data.lexically_normal(), generated_text(20'000, 3));
  const fs::path output = folder.path() / "out";
  JobRun run({.job = job, .output = output, .log = folder.path() / "log"});
  EXPECT_EQ(run.wait(), 0) << read_file(folder.path() / "log");
  const Json result = run.result();
  ASSERT_TRUE(result.is_object()) << run.standard_output();
  EXPECT_EQ(result["state"], "Complete");
  EXPECT_EQ(result["step"], 6);
  EXPECT_TRUE(result["validationLoss"].is_number());
  for (const char* file : {"step-00000003/manifest.json", "step-00000006/manifest.json"})
    EXPECT_TRUE(fs::exists(output / "checkpoints" / file)) << file;
}

}  // namespace
}  // namespace lockstep::test
