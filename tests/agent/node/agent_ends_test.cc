// How lockstep-agent ends, and that none of its workers' processes are left when it ends or a new
// round begins.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "common/api/worker_config.h"
#include "tests/agent/node/agent_fixture.h"

namespace lockstep::node {
namespace {

TEST_F(AgentTest, HoldsWhenAllIsDoneUntilItIsToldToExit) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("step:100+exit:0", 1, 2));
  const AgentState state = agent.wait_for_phase("Completed");
  EXPECT_EQ(state.progress->step, 100) << "what it did last isn't lost";
  Assignment exit = order("step:100+exit:0", 1, 2);
  exit.action = "Exit";
  EXPECT_EQ(agent.put(exit).status, 200);
  EXPECT_EQ(agent.wait_for_exit(), 0);
  expect_nothing_left();
}

TEST_F(AgentTest, ExitsWithTheCodeThatItIsTold) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("wait"));
  agent.wait_for_phase("Running");
  Assignment exit = order("wait");
  exit.action = "Exit";
  exit.exit_code = 9;
  agent.put(exit);
  EXPECT_EQ(agent.wait_for_exit(), 9);
}

TEST_F(AgentTest, LeavesWithTheResultWhenNoControllerComesAnyMore) {
  AgentProcess agent({.job_uid = uid_, .hold_seconds = 0});
  agent.put(order("exit:6"));
  EXPECT_EQ(agent.wait_for_exit(), 6);
  EXPECT_TRUE(contains(agent.termination_text(), "\"exitCode\":6")) << agent.termination_text();
}

TEST_F(AgentTest, PassesEverySignalThatEndsItOnAsSigtermAndWaitsForTheWorkers) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    AgentProcess agent({.job_uid = uid_});
    agent.put(order("print:ready", 1, 2));
    for (const int rank : {0, 1}) {
      wait_until([&] { return contains(agent.log_text(rank), "ready"); }, "the workers run");
    }
    agent.signal(signal);
    EXPECT_EQ(agent.wait_for_exit(), kExitStopped);
    const std::string log = agent.stderr_text();
    EXPECT_TRUE(contains(log, "rank=0 exitCode=143 signal=0")) << log;
    EXPECT_TRUE(contains(log, "rank=1 exitCode=143 signal=0")) << log;
    expect_nothing_left();
  }
}

TEST_F(AgentTest, KillsWorkersThatIgnoreSigtermWhenTheirGraceIsOver) {
  AgentProcess agent({.job_uid = uid_});
  Assignment assignment = order("ignore+print:deaf");
  assignment.grace_period_seconds = 1;
  agent.put(assignment);
  wait_until([&] { return contains(agent.log_text(0), "deaf"); }, "the worker is deaf");
  agent.signal(SIGTERM);
  const AgentState state = agent.wait_for_phase("Stopping");
  EXPECT_TRUE(state.workers.at(0).running);
  EXPECT_EQ(agent.wait_for_exit(), 128 + SIGKILL);
  EXPECT_TRUE(contains(agent.stderr_text(), "signal=9"));
  expect_nothing_left();
}

TEST_F(AgentTest, LeavesNoWorkerBehindWhenItIsKilledItself) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("ignore+print:deaf", 1, 4));
  for (const int rank : {0, 1, 2, 3}) {
    wait_until([&] { return contains(agent.log_text(rank), "deaf"); }, "the worker is deaf");
  }
  agent.signal(SIGKILL);
  EXPECT_EQ(agent.wait_for_exit(), 128 + SIGKILL);
  expect_nothing_left();
}

TEST_F(AgentTest, EndsWhatWorkersHaveForkedInWhateverSessionBeforeTheNextRound) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("orphans+print:forked"));
  wait_until([&] { return processes_of(uid_).size() == 4; }, "agent, worker and two of its own");
  agent.put(order("wait", 2));
  agent.wait_for(
      [](const AgentState& state) { return state.round == 2 && state.phase == "Running"; });
  wait_until([&] { return processes_of(uid_).size() == 2; }, "the agent and the new worker");
  const AgentState state = agent.wait_for_phase("Running");
  EXPECT_EQ(state.round, 2);
  EXPECT_TRUE(state.workers.at(0).running);
}

TEST_F(AgentTest, EndsWhatWorkersHaveForkedWhenItLeaves) {
  AgentProcess agent({.job_uid = uid_});
  Assignment assignment = order("orphans");
  assignment.grace_period_seconds = 0;
  agent.put(assignment);
  wait_until([&] { return processes_of(uid_).size() == 4; }, "agent, worker and two of its own");
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.wait_for_exit(), 128 + SIGKILL);
  EXPECT_TRUE(processes_of(uid_).empty()) << "already when the agent has left";
}

TEST_F(AgentTest, EndsAFailedWorkersProcessGroupAtOnce) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("orphans+exit:1"));
  const AgentState state = agent.wait_for_phase("Failed");
  EXPECT_EQ(state.workers.at(0).exit_code, 1);
  wait_until([&] { return processes_of(uid_).size() == 2; },
             "the agent and the one in a session of its own");
  EXPECT_EQ(agent.wait_for_phase("Failed").round, 1) << "the agent still serves";
}

}  // namespace
}  // namespace lockstep::node
