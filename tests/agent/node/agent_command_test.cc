// lockstep-agent with a user's own command: its output, its processes, its progress.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "common/api/worker_config.h"
#include "tests/agent/node/agent_fixture.h"
#include "tests/agent/node/metrics_text.h"

namespace lockstep::node {
namespace {

TEST_F(AgentTest, RunsAUsersCommandWithTheSameSupervision) {
  AgentProcess agent({.job_uid = uid_});
  Assignment assignment = order("any", 1, 2);
  assignment.train.reset();
  assignment.command = {"sh", "-c", "echo rank $RANK of $WORLD_SIZE; exit $((RANK * 4))"};
  agent.put(assignment);
  const AgentState state = agent.wait_for(
      [](const AgentState& s) { return s.phase == "Failed" && !s.workers.at(0).running; });
  EXPECT_EQ(state.workers.at(0).reason, "Completed");
  EXPECT_EQ(state.workers.at(1).exit_code, 4);
  EXPECT_EQ(state.workers.at(1).log_tail, "rank 1 of 2\n");
}

TEST_F(AgentTest, EndsACommandsRankThatReportsNothingAnyMore) {
  AgentProcess agent({.job_uid = uid_});
  Assignment assignment = command(
      "trap '' TERM; echo '{\"step\": 7}' >> $LOCKSTEP_PROGRESS_FILE; "
      "while [ $RANK = 0 ]; do sleep 0.2; echo '{}' >> $LOCKSTEP_PROGRESS_FILE; done; sleep 1000",
      2);
  assignment.command_hang_seconds = 1;
  ASSERT_EQ(agent.put(assignment).status, 200);
  const AgentState state = agent.wait_for_phase("Failed");
  EXPECT_TRUE(state.workers.at(0).running) << "an empty object is a sign of life";
  EXPECT_EQ(state.workers.at(1).reason, "Hang");
  EXPECT_EQ(state.workers.at(1).log_tail, "rank 1 hung after step 7");
}

TEST_F(AgentTest, MergesTheWholeLinesOfAllRanksAndLosesNone) {
  AgentProcess agent({.job_uid = uid_});
  constexpr int kLines = 3000;
  agent.put(command("i=0; while [ $i -lt " + std::to_string(kLines) +
                        " ]; do printf 'half '; echo \"line $i\"; i=$((i+1)); done; printf end",
                    3));
  agent.wait_for_phase("Completed");
  wait_until(
      [&] {
        const std::string text = agent.stdout_text();
        return std::count(text.begin(), text.end(), '\n') == 3 * (kLines + 1);
      },
      "every line of every rank");
  std::istringstream lines(agent.stdout_text());
  int next[3] = {};
  for (std::string line; std::getline(lines, line);) {
    const size_t rank = static_cast<size_t>(line.at(6) - '0');
    ASSERT_LT(rank, 3u) << line;
    const int number = next[rank]++;
    const std::string words = number < kLines ? "half line " + std::to_string(number) : "end";
    ASSERT_EQ(line, "[rank " + std::to_string(rank) + "] " + words);
  }
}

TEST_F(AgentTest, GivesACommandAnEmptyStdin) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(command("cat; readlink /proc/self/fd/0"));
  agent.wait_for_phase("Completed");
  EXPECT_EQ(agent.log_text(0), "/dev/null\n");
}

TEST_F(AgentTest, SaysThatACommandCannotBeStarted) {
  AgentProcess agent({.job_uid = uid_});
  Assignment assignment = command("");
  assignment.command = {"no-such-program"};
  agent.put(assignment);
  const WorkerState failed = agent.wait_for_phase("Failed").workers.at(0);
  EXPECT_EQ(failed.reason, "StartError");
  EXPECT_TRUE(contains(failed.log_tail, "no-such-program")) << failed.log_tail;
}

TEST_F(AgentTest, LetsAllProcessesOfACommandEndInTheirGrace) {
  AgentProcess agent({.job_uid = uid_});
  // The shell itself ends immediately. Its child takes a while to save.
  agent.put(
      command("sh -c 'trap \"echo saving; sleep 0.2; echo saved; exit 0\" TERM; echo ready; "
              "while true; do sleep 0.02; done' & wait"));
  wait_until([&] { return contains(agent.log_text(0), "ready"); }, "the program runs");
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.wait_for_exit(), kExitStopped);
  EXPECT_TRUE(contains(agent.log_text(0), "saving\nsaved\n")) << agent.log_text(0);
  expect_nothing_left();
}

TEST_F(AgentTest, KillsWhatACommandHasStartedWhenTheGraceIsOver) {
  AgentProcess agent({.job_uid = uid_});
  Assignment assignment = command(
      "trap '' TERM; setsid sh -c 'trap \"\" TERM; while true; do sleep 1; done' & "
      "echo ready; while true; do sleep 1; done");
  assignment.grace_period_seconds = 1;
  agent.put(assignment);
  wait_until([&] { return contains(agent.log_text(0), "ready"); }, "the program runs");
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.wait_for_exit(), kExitStopped);
  EXPECT_TRUE(processes_of(uid_).empty()) << "already when the agent has left";
}

TEST_F(AgentTest, ReportsWhatProgramsSayOfTheirProgress) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(
      command("echo \"{\\\"step\\\": $((RANK + 5)), \\\"steps\\\": 9, \\\"samples\\\": 40, "
              "\\\"loss\\\": NaN}\" >> $LOCKSTEP_PROGRESS_FILE; echo noise >> "
              "$LOCKSTEP_PROGRESS_FILE; test $WORLD_SIZE = 2",
              2));
  const AgentState state = agent.wait_for([](const AgentState& s) {
    return s.phase == "Completed" && s.progress && s.progress->samples == 80;
  });
  EXPECT_EQ(state.progress->step, 5) << "the lowest rank's";
  EXPECT_EQ(state.progress->steps, 9);
  EXPECT_FALSE(state.progress->loss);
  EXPECT_EQ(state.workers.at(1).step, 6);
  const MetricsText text(test::http_call(agent.port(), {.target = "/metrics"}).body);
  const std::string labels = "{job=\"job\",namespace=\"space\",node_index=\"0\"";
  EXPECT_EQ(text.value("lockstep_train_step" + labels + ",rank=\"1\"}"), 6);
  EXPECT_EQ(text.value("lockstep_train_samples_total" + labels + "}"), 80);
  EXPECT_EQ(
      text.value("lockstep_program_progress_lines" + labels + ",rank=\"0\",understood=\"false\"}"),
      1);

  Assignment second = command("exit 0", 2);
  second.world.round = 2;
  second.hash = world_hash(second.world);
  agent.put(second);
  const AgentState fresh =
      agent.wait_for([](const AgentState& s) { return s.round == 2 && s.phase == "Completed"; });
  EXPECT_FALSE(fresh.progress) << "a new round begins with an empty file";
}

TEST_F(AgentTest, CountsWhatTheWholeTreeOfARankUses) {
  AgentProcess agent({.job_uid = uid_});
  // Rank 0: a shell, a sleeper with an open file, and an orphaned process in the shell's session.
  // Rank 1: uses a little CPU time in a child, then waits.
  agent.put(
      command("if [ $RANK = 0 ]; then sleep 1000 3</dev/null & (sleep 1000 &); "
              "else sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'; fi; "
              "echo ready; while true; do sleep 1000; done",
              2));
  for (const int rank : {0, 1}) {
    wait_until([&] { return contains(agent.log_text(rank), "ready"); }, "the programs run");
  }
  const std::string labels = "{job=\"job\",namespace=\"space\",node_index=\"0\",rank=\"";
  const auto scrape = [&] {
    return MetricsText(test::http_call(agent.port(), {.target = "/metrics"}).body);
  };
  wait_until([&] { return scrape().value("lockstep_process_count" + labels + "0\"}") == 4; },
             "a shell and three sleepers");
  wait_until([&] { return scrape().value("lockstep_process_count" + labels + "1\"}") == 2; },
             "a shell and a sleeper");
  const MetricsText text = scrape();
  EXPECT_GT(text.value("lockstep_process_resident_memory_bytes" + labels + "0\"}"), 1 << 20);
  EXPECT_GE(text.value("lockstep_process_open_fds" + labels + "0\"}"), 13);
  const double cpu = text.value("lockstep_process_cpu_seconds_total" + labels + "1\"}");
  EXPECT_GT(cpu, 0.01);
  EXPECT_GE(text.value("lockstep_process_io_read_bytes" + labels + "1\"}"), 0);
  EXPECT_EQ(text.type("lockstep_process_cpu_seconds_total"), "counter");

  Assignment second = command("exit 0", 2);
  second.world.round = 2;
  second.hash = world_hash(second.world);
  agent.put(second);
  agent.wait_for([](const AgentState& s) { return s.round == 2 && s.phase == "Completed"; });
  const MetricsText later = scrape();
  EXPECT_GE(later.value("lockstep_process_cpu_seconds_total" + labels + "1\"}"), cpu);
  EXPECT_FALSE(later.has("lockstep_process_count")) << "nothing runs";
}

}  // namespace
}  // namespace lockstep::node
