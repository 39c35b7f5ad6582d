#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <string>

#include "tests/agent/node/agent_fixture.h"
#include "tests/agent/node/agent_process.h"
#include "tests/support/core_dump.h"

namespace lockstep::node {
namespace {

// It has the job's token. What it runs is the user's, and dumps as the user likes.
TEST_F(AgentTest, LeavesNoCoreDumpWhenItCrashesAndForbidsNoneToACommand) {
  if (!test::dumps_core_after(nullptr)) GTEST_SKIP() << "this machine writes no core dumps";
  AgentProcess agent({.job_uid = uid_});
  agent.put(command("ulimit -c"));
  agent.wait_for_phase("Completed");
  rlimit own{};
  ASSERT_EQ(::getrlimit(RLIMIT_CORE, &own), 0);
  const std::string limit =
      own.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(own.rlim_cur / 512);
  EXPECT_TRUE(contains(agent.log_text(0), limit)) << agent.log_text(0);
  const rlimit most{own.rlim_max, own.rlim_max};
  ASSERT_EQ(::prlimit(agent.pid(), RLIMIT_CORE, &most, nullptr), 0);
  agent.signal(SIGABRT);  // sanitizers catch SIGSEGV
  siginfo_t end{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(agent.pid()), &end, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(end.si_code, CLD_KILLED) << "dumped: " << (end.si_code == CLD_DUMPED);
  EXPECT_EQ(agent.wait_for_exit(), 128 + SIGABRT);
}

}  // namespace
}  // namespace lockstep::node
