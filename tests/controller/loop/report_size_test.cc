// The reports of one job's agents take bounded memory, and plans share them.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "controller/loop/agent_watchers.h"
#include "tests/controller/support/no_agents.h"

namespace lockstep::loop {
namespace {

constexpr size_t kBytesMax = 64 * 1024;

struct ReportSizeTest : ::testing::Test {
  ManualClock clock;
  Timers timers{clock};
  Random random{1};
  plan::NoAgents agents;
  AgentWatchOptions options() {
    AgentWatchOptions result;
    result.report_bytes_max = kBytesMax;
    return result;
  }
  AgentWatchers watchers{agents, timers, random, options(),
                         [this](const std::string& job, Urgency) { changed.push_back(job); }};
  std::vector<std::string> changed;
  int64_t sequence = 0;

  void watch(const std::string& job, int count) {
    std::vector<plan::AgentTarget> targets;
    for (int i = 0; i < count; ++i) {
      targets.push_back({.pod_uid = std::to_string(i), .pod_name = "p", .ip = "::1", .node = "n"});
    }
    watchers.set_targets(job, {"token"}, targets);
  }
  void report(const std::string& job, const std::string& uid, size_t tail, size_t reason) {
    AgentState state{.sequence = ++sequence};
    state.workers.push_back(
        {.reason = std::string(reason, 'R'), .log_tail = std::string(tail, 't')});
    watchers.learn(job, uid, state);
  }
  const plan::AgentView view(const std::string& job, const std::string& uid) {
    return watchers.views(job).at(uid);
  }
};

TEST_F(ReportSizeTest, PlansShareTheReports) {
  watch("job", 1);
  report("job", "0", 10, 10);
  EXPECT_EQ(view("job", "0").state, view("job", "0").state);
}

TEST_F(ReportSizeTest, LogTailsGoFirst) {
  watch("job", 2);
  report("job", "0", kBytesMax / 2, 5);
  report("job", "1", kBytesMax / 2, 5);
  EXPECT_EQ(view("job", "0").state->workers[0].log_tail.size(), kBytesMax / 2);
  EXPECT_EQ(view("job", "1").state->workers[0].log_tail, "");
  EXPECT_EQ(view("job", "1").state->workers[0].reason, "RRRRR");
  EXPECT_FALSE(view("job", "1").reports_too_much);
}

TEST_F(ReportSizeTest, AReportThatIsTooMuchIsNotKeptAndOtherJobsAreSpared) {
  watch("job", 2);
  watch("other", 1);
  report("job", "0", 0, kBytesMax / 2);
  report("job", "1", 0, 5);
  changed.clear();
  report("job", "1", 0, kBytesMax / 2);
  EXPECT_TRUE(view("job", "1").reports_too_much);
  EXPECT_EQ(view("job", "1").state->workers[0].reason, "RRRRR");
  EXPECT_EQ(changed, (std::vector<std::string>{"job"}));
  report("other", "0", 0, kBytesMax / 2);
  EXPECT_FALSE(view("other", "0").reports_too_much);
  report("job", "0", 0, 5);
  report("job", "1", 0, kBytesMax / 2);
  EXPECT_FALSE(view("job", "1").reports_too_much);
  EXPECT_EQ(view("job", "1").state->workers[0].reason.size(), kBytesMax / 2);
}

TEST_F(ReportSizeTest, AnAgentThatIsGoneTakesNothingAnyMore) {
  watch("job", 2);
  report("job", "0", 0, kBytesMax / 2);
  watch("job", 0);
  watch("job", 2);
  report("job", "1", 0, kBytesMax * 3 / 4);
  EXPECT_FALSE(view("job", "1").reports_too_much);
}

}  // namespace
}  // namespace lockstep::loop
