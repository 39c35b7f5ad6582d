#include "common/api/step_number_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <regex>
#include <set>

#include "common/api/agent_messages.h"
#include "common/api/progress_page.h"
#include "tests/common/api/every_number.h"

namespace lockstep {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(LOCKSTEP_SOURCE_DIR) + path);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Checks that `object` has the numbers in the table's status column, and no other numbers.
void expect_status_numbers(const Json& object, const StepNumbers& numbers) {
  size_t count = 0;
  for (const StepNumber& number : step_number_table()) {
    if (number.status.name.empty()) continue;
    ++count;
    EXPECT_EQ(number_or(object, number.status.name, 0), value_of(number, numbers))
        << number.status.name;
  }
  for (const auto& [key, value] : object.items()) count -= value.is_number() ? 1 : 0;
  EXPECT_EQ(count, 0u) << object;
}

TEST(StepNumberTable, HasOneRowForEachNumber) {
  double next = 1001;  // another row for the same number would have overwritten it
  for (const StepNumber& number : step_number_table()) {
    EXPECT_EQ(value_of(number, every_number()), next++);
  }
}

TEST(StepNumberTable, EveryNumberGoesThroughThePage) {
  Result<ProgressPage> page = ProgressPage::create();
  ASSERT_TRUE(page.ok());
  const ProgressNumbers written{every_number()};
  page->write(written);
  ProgressNumbers read;
  ASSERT_TRUE(page->read(read));
  EXPECT_EQ(read, written);
}

TEST(StepNumberTable, NumbersOfTheStatusAreInTheAgentsStateAndInTheJobs) {
  const ProgressStatus progress{numbers_in_status(every_number())};
  AgentState state;
  state.progress = progress;
  expect_status_numbers(to_json(state).at("progress"), every_number());
  EXPECT_EQ(agent_state_from_json(to_json(state))->progress, progress);
  TrainingJob job;
  job.status.progress = progress;
  expect_status_numbers(to_json(job).at("status").at("progress"), every_number());
}

TEST(StepNumberTable, TheStatusHasCountsThatAreUnknownAsZero) {
  const StepNumbers numbers =
      numbers_in_status({.loss = std::numeric_limits<double>::infinity(), .learning_rate = 1});
  EXPECT_EQ(numbers, (StepNumbers{.step = 0, .steps = 0, .tokens = 0, .samples = 0}));
}

TEST(StepNumberTable, NumbersOfTheFileAreReadAsTheyWereWritten) {
  const Json line = metrics_line(every_number());
  const StepNumbers read = numbers_from_metrics_line(line);
  for (const StepNumber& number : step_number_table()) {
    std::string path = "/" + std::string(number.file);
    std::replace(path.begin(), path.end(), '.', '/');
    if (number.file.empty()) {
      EXPECT_FALSE(value_of(number, read));
    } else {
      EXPECT_EQ(line.at(Json::json_pointer(path)), *value_of(number, every_number())) << path;
      EXPECT_EQ(value_of(number, read), value_of(number, every_number())) << path;
    }
  }
}

TEST(StepNumberTable, ALineThatIsNoneHasNoNumbers) {
  for (const char* text : {"[]", "7", "{\"loss\":\"low\",\"step\":1.5,\"seconds\":3}"}) {
    EXPECT_EQ(numbers_from_metrics_line(*parse_json(text)), StepNumbers{}) << text;
  }
}

TEST(StepNumberTable, UpdatesOverwriteWhatTheyKnow) {
  StepNumbers numbers{.step = 1, .loss = 2};
  update(numbers, {.step = 3, .gradient_norm = 4});
  EXPECT_EQ(numbers, (StepNumbers{.step = 3, .loss = 2, .gradient_norm = 4}));
}

TEST(StepNumberTable, DocumentsAndDashboardsNameItsMetricsAndNoOthers) {
  std::set<std::string> metrics;
  for (const StepNumber& number : step_number_table()) {
    if (number.metric.name != nullptr) metrics.insert(number.metric.name);
  }
  const std::string files = "/charts/lockstep/files/";
  const std::string operations = text_of("/docs/operations.md");
  for (const std::string& text :
       {operations, text_of("/docs/trainingjob.md"), text_of(files + "dashboards/job.json"),
        text_of(files + "alerts.yaml")}) {
    const std::regex name("lockstep_train_[a-z0-9_]+");
    for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at) {
      EXPECT_TRUE(metrics.contains(at->str())) << at->str() << " is no metric";
    }
  }
  for (const std::string& metric : metrics) {
    EXPECT_NE(operations.find("`" + metric + "`"), std::string::npos)
        << "docs/operations.md does not name " << metric;
  }
}

}  // namespace
}  // namespace lockstep
