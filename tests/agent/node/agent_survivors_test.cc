// Workers that leave their round without ending, because a peer of theirs is gone.
#include <signal.h>

#include <filesystem>
#include <string>
#include <utility>

#include "common/api/worker_config.h"
#include "tests/agent/node/agent_fixture.h"
#include "tests/agent/node/agent_process.h"
#include "tests/agent/node/metrics_text.h"

namespace lockstep::node {
namespace {

// Rank 0 has left because of rank 1, which a signal ended.
constexpr char kLostPeer[] = "pid+step:3@0+leave:4@0+signal:9@1";

class SurvivorsTest : public AgentTest {
 protected:
  static AgentState wait_for_both(const AgentProcess& agent) {
    return agent.wait_for([](const AgentState& state) {
      return state.workers.size() == 2 && state.workers[0].exit_code == kExitPeerLost &&
             state.workers[1].signal == SIGKILL;
    });
  }
  // Returns the state once all workers of the round have written their pids.
  static AgentState wait_for_round(const AgentProcess& agent, int64_t round) {
    return agent.wait_for(
        [&](const AgentState& state) { return state.round == round && state.phase == "Running"; });
  }
};

TEST_F(SurvivorsTest, AWorkerThatLeavesCountsAsEndedAndServesTheNextRound) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order(kLostPeer, 1, 2));
  const AgentState left = wait_for_both(agent);
  EXPECT_FALSE(left.workers[0].running);
  EXPECT_EQ(left.workers[0].signal, 0);
  EXPECT_EQ(left.workers[0].reason, "Error");
  EXPECT_EQ(left.workers[0].step, 3) << "what it reported last";
  EXPECT_TRUE(contains(left.workers[0].log_tail, "pid ")) << left.workers[0].log_tail;
  EXPECT_EQ(left.phase, "Failed");
  agent.put(order("pid+shm", 2, 2));
  const AgentState next = wait_for_round(agent, 2);
  EXPECT_EQ(next.workers[0].pid, left.workers[0].pid);
  EXPECT_NE(next.workers[1].pid, left.workers[1].pid);
  EXPECT_TRUE(next.workers[0].running);
  EXPECT_EQ(next.workers[0].step, 0) << "nothing of the round before";
  const std::string pid = "pid " + std::to_string(left.workers[0].pid) + "\n";
  wait_until([&] { return agent.log_text(0) == pid + pid + "met 2\n"; },
             "the output of both rounds, with one shared memory");
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.wait_for_exit(), kExitStopped);
}

TEST_F(SurvivorsTest, AlsoStayWhenAPeerHangs) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("step:3+leave:8@0", 1, 2));
  const AgentState left = agent.wait_for([](const AgentState& state) {
    return state.workers.size() == 2 && state.workers[0].exit_code == kExitPeerHung;
  });
  EXPECT_TRUE(left.workers[1].running) << "the one that hangs";
  agent.put(order("pid", 2, 2));
  const AgentState next = wait_for_round(agent, 2);
  EXPECT_EQ(next.workers[0].pid, left.workers[0].pid);
  EXPECT_NE(next.workers[1].pid, left.workers[1].pid);
}

TEST_F(SurvivorsTest, OneThatCannotBeGivenTheNextRoundFailsThatRoundAndIsReplaced) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("shut:4@0+signal:9@1", 1, 2));
  const AgentState left = wait_for_both(agent);
  agent.put(order("pid", 2, 2));
  const AgentState failed = agent.wait_for(
      [](const AgentState& state) { return state.round == 2 && state.phase == "Failed"; });
  EXPECT_EQ(failed.workers[0].pid, left.workers[0].pid);
  EXPECT_EQ(failed.workers[0].signal, SIGKILL);
  agent.put(order("pid", 3, 2));
  const AgentState next = wait_for_round(agent, 3);
  EXPECT_NE(next.workers[0].pid, left.workers[0].pid);
}

// The time of a process that stays counts once, and goes on.
TEST_F(SurvivorsTest, CountTheirTimeOverAllRounds) {
  AgentProcess agent({.job_uid = uid_});
  Assignment assignment = order("spin:400@0+leave:4@0+signal:9@1", 1, 2);
  const auto cpu_seconds = [&] {
    const MetricsText text(test::http_call(agent.port(), {.target = "/metrics"}).body);
    return text.value(
        R"(lockstep_process_cpu_seconds_total{job="job",namespace="space",node_index="0",rank="0"})");
  };
  agent.put(assignment);
  wait_for_both(agent);
  EXPECT_GE(cpu_seconds(), 0.35);
  agent.put(order(assignment.job_name, 2, 2));
  agent.wait_for([](const AgentState& state) {
    return state.round == 2 && state.workers[0].exit_code == kExitPeerLost;
  });
  EXPECT_GE(cpu_seconds(), 0.7);
  EXPECT_LT(cpu_seconds(), 1.1);
}

// The agent waits a second for it. A busy machine may need more than one try.
TEST_F(SurvivorsTest, AWorkerMayLeaveShortlyAfterTheNextRoundIsAssigned) {
  bool has_stayed = false;
  for (int i = 0; i < 10 && !has_stayed; ++i) {
    AgentProcess agent({.job_uid = uid_});
    agent.put(order("step:3+wait:300@0+leave:4@0", 1, 2));
    const AgentState first = agent.wait_for([](const AgentState& state) {
      return state.workers.size() == 2 && state.workers[0].step == 3 && state.workers[1].step == 3;
    });
    agent.put(order("pid", 2, 2));
    const AgentState next = wait_for_round(agent, 2);
    EXPECT_NE(next.workers[1].pid, first.workers[1].pid) << "it never leaves";
    EXPECT_NE(::kill(static_cast<pid_t>(first.workers[1].pid), 0), 0);
    has_stayed = next.workers[0].pid == first.workers[0].pid;
  }
  EXPECT_TRUE(has_stayed);
}

// A process that is about to be killed for one round serves no later one that comes meanwhile.
TEST_F(SurvivorsTest, OneThatIsGivenUpDoesNotReturn) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order(kLostPeer, 1, 2));
  const AgentState left = wait_for_both(agent);
  agent.put(order("pid", 2, 3));
  agent.put(order("pid", 3, 2));
  const AgentState next = wait_for_round(agent, 3);
  EXPECT_NE(next.workers[0].pid, left.workers[0].pid);
  EXPECT_TRUE(next.workers[0].running);
}

TEST_F(SurvivorsTest, TakeNoDescriptorsFromRoundToRound) {
  AgentProcess agent({.job_uid = uid_});
  const auto descriptors = [](int64_t pid) {
    const std::filesystem::directory_iterator files("/proc/" + std::to_string(pid) + "/fd");
    return std::distance(begin(files), end(files));
  };
  std::pair<int64_t, int64_t> early;
  for (int64_t round = 1; round <= 12; ++round) {
    agent.put(order(kLostPeer, round, 2));
    const AgentState left = agent.wait_for([&](const AgentState& state) {
      return state.round == round && state.workers.size() == 2 &&
             state.workers[0].exit_code == kExitPeerLost && state.workers[1].signal == SIGKILL;
    });
    const std::pair now(descriptors(agent.pid()), descriptors(left.workers[0].pid));
    if (round == 3) early = now;
    if (round > 3) {
      EXPECT_LE(now.first, early.first + 1)
          << "agent, round " << round;  // a connection comes and goes
      EXPECT_EQ(now.second, early.second) << "worker, round " << round;
    }
  }
}

TEST_F(SurvivorsTest, OneThatDiesWhileItWaitsIsStartedAnew) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order(kLostPeer, 1, 2));
  const AgentState left = wait_for_both(agent);
  const auto pid = static_cast<pid_t>(left.workers[0].pid);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  wait_until([&] { return ::kill(pid, 0) != 0; }, "the agent to reap it");
  EXPECT_EQ(agent.wait_for([](const AgentState&) { return true; }).workers[0].exit_code,
            kExitPeerLost);
  agent.put(order("pid", 2, 2));
  const AgentState next = wait_for_round(agent, 2);
  EXPECT_NE(next.workers[0].pid, left.workers[0].pid);
}

TEST_F(SurvivorsTest, AreKilledForARoundThatTheyCannotServe) {
  struct Case {
    const char* name;
    Assignment assignment;
  };
  Assignment with_states = order("pid", 2, 2);
  with_states.checkpoint.memory.emplace();
  Assignment of_command = command("sleep 60", 2);
  of_command.world.round = 2;
  of_command.hash = world_hash(of_command.world);
  for (const Case& one : {Case{"more processes", order("pid", 2, 3)},
                          Case{"memory for states", with_states}, Case{"command", of_command}}) {
    SCOPED_TRACE(one.name);
    AgentProcess agent({.job_uid = uid_});
    agent.put(order(kLostPeer, 1, 2));
    const AgentState left = wait_for_both(agent);
    ASSERT_EQ(agent.put(one.assignment).status, 200);
    const AgentState next = wait_for_round(agent, 2);
    EXPECT_NE(next.workers[0].pid, left.workers[0].pid);
    EXPECT_NE(::kill(static_cast<pid_t>(left.workers[0].pid), 0), 0);
  }
}

TEST_F(SurvivorsTest, EndWithTheAgent) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order(kLostPeer, 1, 2));
  wait_for_both(agent);
  agent.signal(SIGTERM);
  const int result = agent.wait_for_exit();  // of the first failure
  EXPECT_TRUE(result == 128 + SIGKILL || result == kExitPeerLost) << result;
  expect_nothing_left();
}

TEST_F(SurvivorsTest, AreRespawnedIfTheAgentIsToldSo) {
  AgentProcess agent({.job_uid = uid_, .more_env = {"LOCKSTEP_SURVIVORS=respawn"}});
  agent.put(order("fds+exit:0"));
  agent.wait_for_phase("Completed");
  EXPECT_EQ(agent.log_text(0).find("fd:"), agent.log_text(0).rfind("fd:")) << "the page alone";
}

}  // namespace
}  // namespace lockstep::node
