// lockstep-agent as a process, with real workers: their rounds, and how failures are reported.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>

#include "tests/agent/node/agent_fixture.h"

namespace lockstep::node {
namespace {

TEST_F(AgentTest, SaysWhichWorkerFailedAndHow) {
  AgentProcess agent({.job_uid = uid_});
  ASSERT_EQ(agent.put(order("print:hello+error:cause+exit:7@1", 1, 2)).status, 200);
  const AgentState state = agent.wait_for_phase("Failed");
  EXPECT_EQ(state.round, 1);
  EXPECT_TRUE(state.workers.at(0).running) << "the others go on until they are told";
  const WorkerState& failed = state.workers.at(1);
  EXPECT_EQ(failed.exit_code, 7);
  EXPECT_EQ(failed.signal, 0);
  EXPECT_EQ(failed.reason, "Error");
  EXPECT_EQ(failed.log_tail, "hello\ncause\n");
  EXPECT_EQ(agent.log_text(1), "hello\ncause\n");
  wait_until([&] { return contains(agent.stdout_text(), "[rank 1] cause\n"); }, "its output");
  EXPECT_TRUE(contains(agent.termination_text(), "\"exitCode\":7"));
}

TEST_F(AgentTest, NamesTheSignalThatEndedAWorker) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("signal:11"));
  const WorkerState failed = agent.wait_for_phase("Failed").workers.at(0);
  EXPECT_EQ(failed.signal, SIGSEGV);
  EXPECT_EQ(failed.exit_code, 128 + SIGSEGV);
  EXPECT_EQ(failed.reason, "Signal");
}

TEST_F(AgentTest, NamesAWorkerThatIsKilledFromOutside) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("wait"));
  const AgentState running = agent.wait_for_phase("Running");
  kill(static_cast<pid_t>(running.workers.at(0).pid), SIGKILL);
  const AgentState state = agent.wait_for_phase("Failed");
  EXPECT_EQ(state.workers.at(0).signal, SIGKILL);
  EXPECT_GT(state.sequence, running.sequence);
}

TEST_F(AgentTest, EndsAWorkerThatIsAloneAndStandsStillInAStep) {
  AgentProcess agent({.job_uid = uid_});
  Assignment assignment = order("ignore+steps:6");
  assignment.hang_seconds = 1;
  ASSERT_EQ(agent.put(assignment).status, 200);
  const AgentState state = agent.wait_for_phase("Failed");
  EXPECT_EQ(state.workers.at(0).reason, "Hang");
  EXPECT_EQ(state.workers.at(0).log_tail, "rank 0 hung after step 6");
  EXPECT_EQ(state.workers.at(0).exit_code, 128 + SIGKILL);
}

TEST_F(AgentTest, SaysThatTheWorkerProgramCannotBeStarted) {
  AgentProcess agent({.job_uid = uid_, .worker_binary = "/nowhere/lockstep-worker"});
  agent.put(order("wait"));
  const WorkerState failed = agent.wait_for_phase("Failed").workers.at(0);
  EXPECT_EQ(failed.reason, "StartError");
  EXPECT_TRUE(contains(failed.log_tail, "/nowhere/lockstep-worker")) << failed.log_tail;
}

TEST_F(AgentTest, EndsTheOldWorkersBeforeANewRoundAndRefusesOlderOnes) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("ignore+print:one", 1, 2));
  const AgentState first = agent.wait_for_phase("Running");
  for (const int rank : {0, 1}) {
    wait_until([&] { return contains(agent.log_text(rank), "one"); }, "the worker is deaf");
  }
  const Assignment newer = order("print:two", 3, 2);
  EXPECT_EQ(agent.put(newer).status, 200);
  const AgentState second = agent.wait_for(
      [](const AgentState& state) { return state.round == 3 && state.phase == "Running"; });
  EXPECT_EQ(second.hash, newer.hash);
  for (const WorkerState& old : first.workers) {
    EXPECT_NE(kill(static_cast<pid_t>(old.pid), 0), 0) << "pid " << old.pid;
  }
  wait_until([&] { return processes_of(uid_).size() == 3; }, "the agent and two workers");

  EXPECT_EQ(agent.put(order("one", 2, 2)).status, 409);
  Assignment other_world = order("two", 3, 2);
  other_world.world.members[0].port = 31000;
  other_world.hash = world_hash(other_world.world);
  EXPECT_EQ(agent.put(other_world).status, 409);
  Assignment wrong_hash = newer;
  wrong_hash.hash = "0123456789abcdef";
  EXPECT_EQ(agent.put(wrong_hash).status, 400);
  Assignment other_job = newer;
  other_job.world.job_uid = "other";
  other_job.hash = world_hash(other_job.world);
  EXPECT_EQ(agent.put(other_job).status, 400);
  EXPECT_EQ(agent.put(newer).status, 200) << "the same again";
  const AgentState after = agent.wait_for([](const AgentState&) { return true; });
  EXPECT_EQ(after.workers.at(0).pid, second.workers.at(0).pid);
  wait_until([&] { return agent.log_text(0) == "one\ntwo\n"; }, "the output of both rounds");
}

TEST_F(AgentTest, GivesAWorkerItsThreeDescriptorsAndNothingElse) {
  AgentProcess agent({.job_uid = uid_});
  const test::HttpReply open_connection = agent.put(order("fds+shm+exit:0", 1, 3));
  ASSERT_EQ(open_connection.status, 200);
  agent.wait_for_phase("Completed");
  for (const int rank : {0, 1, 2}) {
    const std::string text = agent.log_text(rank);
    EXPECT_EQ(std::count(text.begin(), text.end(), ':'), 3) << text;
    EXPECT_TRUE(contains(text, "met 3\n")) << text;
  }
}

TEST_F(AgentTest, KeepsMemoryForTheStatesOfItsRanksFromRoundToRound) {
  AgentProcess agent({.job_uid = uid_});
  const auto run = [&](int64_t round, bool keeps, const std::string& orders) {
    Assignment assignment = order(orders, round, 2);
    if (keeps) assignment.checkpoint.memory.emplace();
    ASSERT_EQ(agent.put(assignment).status, 200);
    agent.wait_for([&](const AgentState& state) {
      return state.round == round && state.phase == "Completed";
    });
  };
  run(1, true, "states+exit:0");
  run(2, true, "states@1+exit:0");
  run(3, true, "states+exit:0");
  EXPECT_EQ(agent.log_text(0), "states 1\nstates 2\n");
  EXPECT_EQ(agent.log_text(1), "states 1\nstates 2\nstates 3\n");
  run(4, false, "states+exit:0");
  run(5, true, "states+exit:0");
  EXPECT_EQ(agent.log_text(0), "states 1\nstates 2\nstates 1\nstates 1\n");
}

TEST_F(AgentTest, TellsWorkersTheirRankAndKeepsTheSecretOutOfTheirEnvironment) {
  AgentProcess agent({.job_uid = uid_, .more_env = {"KEPT=yes"}});
  agent.put(order("env:RANK+env:LOCKSTEP_ROUND+env:KEPT+exit:0", 5, 2));
  agent.wait_for_phase("Completed");
  EXPECT_EQ(agent.log_text(1), "RANK=1\nLOCKSTEP_ROUND=5\nKEPT=yes\n");
}

TEST_F(AgentTest, SaysHowLongAgoEachRankFailed) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(command("if [ $RANK = 0 ]; then sleep 0.3; fi; exit 1", 2));
  const AgentState state = agent.wait_for([](const AgentState& s) {
    return s.phase == "Failed" && !s.workers.at(0).running && !s.workers.at(1).running;
  });
  EXPECT_GT(state.workers.at(1).failed_seconds_ago, state.workers.at(0).failed_seconds_ago);
  EXPECT_GT(state.workers.at(0).failed_seconds_ago, 0);
}

TEST_F(AgentTest, GoesOnWhenNobodyReadsItsOutput) {
  AgentProcess agent({.job_uid = uid_, .read_stdout = false});
  agent.put(order("flood:20000+exit:3"));
  const AgentState state = agent.wait_for_phase("Failed");
  EXPECT_LE(state.workers.at(0).log_tail.size(), 2048u);
  EXPECT_TRUE(contains(state.workers.at(0).log_tail, "line 19999 "));
  EXPECT_TRUE(contains(agent.log_text(0), "line 0 ")) << "the file has all of it";
}

}  // namespace
}  // namespace lockstep::node
