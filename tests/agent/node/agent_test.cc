// lockstep-agent as a process, with real workers and sockets.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "common/api/worker_config.h"
#include "common/base/json.h"
#include "tests/agent/node/agent_process.h"
#include "tests/agent/node/assignments.h"
#include "tests/agent/node/metrics_text.h"

namespace lockstep {
namespace {

// Of this test run alone, so that nothing else on the machine is taken for a leftover.
std::string new_uid() {
  static int count = 0;
  return "agent-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

class AgentTest : public testing::Test {
 protected:
  const std::string uid_ = new_uid();

  Assignment order(const std::string& job_name, int64_t round = 1, int64_t processes = 1) const {
    return make_assignment(
        {.job_uid = uid_, .round = round, .processes = processes, .job_name = job_name});
  }
  // Of a shell script that each rank runs.
  Assignment command(const std::string& script, int64_t processes = 1) const {
    Assignment assignment = order("any", 1, processes);
    assignment.train.reset();
    assignment.command = {"sh", "-c", script};
    return assignment;
  }
  void expect_nothing_left() const {
    wait_until([&] { return processes_of(uid_).empty(); }, "no process with the job's uid");
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

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
  EXPECT_EQ(state.workers.at(0).log_tail, "rank 0 stood still after step 6");
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
  other_world.world.nodes[0].port = 31000;
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
  EXPECT_EQ(agent.wait_for_exit(), kExitStopped);
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
}

TEST_F(AgentTest, EndsWhatWorkersHaveForkedWhenItLeaves) {
  AgentProcess agent({.job_uid = uid_});
  Assignment assignment = order("orphans");
  assignment.grace_period_seconds = 0;
  agent.put(assignment);
  wait_until([&] { return processes_of(uid_).size() == 4; }, "agent, worker and two of its own");
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.wait_for_exit(), kExitStopped);
  EXPECT_TRUE(processes_of(uid_).empty()) << "already when the agent has left";
}

TEST_F(AgentTest, EndsAFailedWorkersProcessGroupAtOnce) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("orphans+exit:1"));
  agent.wait_for_phase("Failed");
  wait_until([&] { return processes_of(uid_).size() == 2; },
             "the agent and the one in a session of its own");
}

TEST_F(AgentTest, GivesAWorkerItsTwoDescriptorsAndNothingElse) {
  AgentProcess agent({.job_uid = uid_});
  const test::HttpReply open_connection = agent.put(order("fds+shm+exit:0", 1, 3));
  ASSERT_EQ(open_connection.status, 200);
  agent.wait_for_phase("Completed");
  for (const int rank : {0, 1, 2}) {
    const std::string text = agent.log_text(rank);
    EXPECT_EQ(std::count(text.begin(), text.end(), ':'), 2) << text;
    EXPECT_TRUE(contains(text, "met 3\n")) << text;
  }
}

TEST_F(AgentTest, TellsWorkersTheirRankAndKeepsTheSecretOutOfTheirEnvironment) {
  AgentProcess agent({.job_uid = uid_, .more_env = {"KEPT=yes"}});
  agent.put(order("env:RANK+env:LOCKSTEP_ROUND+env:KEPT+exit:0", 5, 2));
  agent.wait_for_phase("Completed");
  EXPECT_EQ(agent.log_text(1), "RANK=1\nLOCKSTEP_ROUND=5\nKEPT=yes\n");
}

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
  // The shell itself ends at once; what it has started saves, and takes its time for it.
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
  // Rank 0: a shell, a sleeper with a file open, and one in the shell's session whose parent is
  // gone. Rank 1: burns a little CPU in a child, and waits.
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

TEST_F(AgentTest, WakesAWaitingControllerAtOnceWhenAWorkerDies) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("wait"));
  const AgentState running = agent.wait_for_phase("Running");
  test::RawConnection connection(agent.port());
  connection.send("GET /v1/state?timeoutSeconds=30&since=" + std::to_string(running.sequence) +
                  " HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n");
  kill(static_cast<pid_t>(running.workers.at(0).pid), SIGKILL);
  const auto state = agent_state_from_json(*parse_json(connection.read_reply().body));
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->phase, "Failed");
  EXPECT_EQ(state->boot_id, running.boot_id);
}

TEST_F(AgentTest, AnswersAtOnceWhoKnowsAnotherSequence) {
  AgentProcess agent({.job_uid = uid_});
  for (const char* since : {"0", "999"}) {  // 999: of an agent before this one
    const test::HttpReply reply = test::http_call(
        agent.port(),
        {.target = std::string("/v1/state?timeoutSeconds=30&since=") + since, .token = "secret"});
    EXPECT_EQ(reply.status, 200);
  }
  const test::HttpReply unchanged = test::http_call(
      agent.port(), {.target = "/v1/state?since=1&timeoutSeconds=0", .token = "secret"});
  EXPECT_EQ(unchanged.status, 200);
}

TEST_F(AgentTest, AnswersInTheVersionOfWhoAsksAndInItsOwnNewestToWhoeverIsNewer) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("wait"));
  agent.wait_for_phase("Running");
  const std::map<std::string, int64_t> answers = {{"", 1},  // as every controller of version 1
                                                  {"?protocol=1", 1},
                                                  {"?protocol=2", 2},
                                                  {"?protocol=9", kProtocolNewest}};
  for (const auto& [query, expected] : answers) {
    SCOPED_TRACE(query);
    const Json state = *parse_json(agent.get("/v1/state" + query).body);
    EXPECT_EQ(state.at("protocol"), expected);
    EXPECT_TRUE(agent_state_from_json(state).ok());
  }
  Assignment older = order("wait");
  older.protocol = 1;
  EXPECT_EQ(agent.put(older).status, 200);
  Assignment newer = order("wait");
  newer.protocol = kProtocolNewest + 1;
  const test::HttpReply refused = agent.put(newer);
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(contains(refused.body, "assignment.protocol")) << refused.body;
  EXPECT_EQ(agent.get("/v1/state?protocol=x").status, 400);
}

struct RefusedCall {
  test::HttpCall call;
  int status;
};

TEST_F(AgentTest, RefusesStrangersAndNonsenseWithAnErrorInJson) {
  AgentProcess agent({.job_uid = uid_});
  const std::string good = dump_json(to_json(order("wait")));
  const RefusedCall cases[] = {
      {{.target = "/v1/state"}, 401},
      {{.target = "/v1/state", .token = "secre"}, 401},
      {{.target = "/v1/state", .token = "secrets"}, 401},
      {{.method = "PUT", .target = "/v1/assignment", .token = "guess", .body = good}, 401},
      {{.target = "/v1/assignment", .token = "secret"}, 405},
      {{.method = "DELETE", .target = "/metrics"}, 405},
      {{.target = "/etc/passwd", .token = "secret"}, 404},
      {{.target = "/v1/state?since=-1", .token = "secret"}, 400},
      {{.target = "/v1/state?since=x", .token = "secret"}, 400},
      {{.target = "/v1/state?timeoutSeconds=", .token = "secret"}, 400},
      {{.method = "PUT", .target = "/v1/assignment", .token = "secret"}, 400},
      {{.method = "PUT", .target = "/v1/assignment", .token = "secret", .body = "{"}, 400},
      {{.method = "PUT", .target = "/v1/assignment", .token = "secret", .body = "[]"}, 400},
      {{.method = "PUT",
        .target = "/v1/assignment",
        .token = "secret",
        .body = std::string(200'000, '[')},
       400},
      {{.method = "PUT",
        .target = "/v1/assignment",
        .token = "secret",
        .body = std::string(kAssignmentBytesMax + 1, ' ')},
       413},
  };
  for (const RefusedCall& refused : cases) {
    const test::HttpReply reply = test::http_call(agent.port(), refused.call);
    EXPECT_EQ(reply.status, refused.status) << refused.call.method << " " << refused.call.target;
    const auto document = parse_json(reply.body);
    ASSERT_TRUE(document.ok()) << reply.body;
    EXPECT_NE(string_or(*document, "error", ""), "");
  }
  EXPECT_EQ(agent.wait_for([](const AgentState&) { return true; }).phase, "Idle");
}

TEST_F(AgentTest, ServesTheControllerWhileStrangersHoldConnectionsOpen) {
  AgentProcess agent({.job_uid = uid_});
  std::vector<std::unique_ptr<test::RawConnection>> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(std::make_unique<test::RawConnection>(agent.port()));
    strangers.back()->send("PUT /v1/assignment HTTP/1.1\r\nContent-Le");
  }
  EXPECT_EQ(agent.put(order("exit:0")).status, 200);
  agent.wait_for_phase("Completed");
}

TEST_F(AgentTest, ServesMetricsThatComeFromTheWorkers) {
  AgentProcess agent({.job_uid = uid_});
  EXPECT_EQ(test::http_call(agent.port(), {.target = "/healthz"}).body, "ok");
  agent.put(order("wait", 1, 2));
  agent.wait_for_phase("Running");
  agent.put(order("step:10", 2, 2));
  agent.wait_for([](const AgentState& state) {
    return state.progress && state.progress->step == 10 && state.workers.at(1).step == 10;
  });
  const test::HttpReply reply = test::http_call(agent.port(), {.target = "/metrics"});
  EXPECT_TRUE(contains(reply.head, "text/plain; version=0.0.4"));
  const MetricsText text(reply.body);
  const std::string labels = "{job=\"job\",namespace=\"space\",node_index=\"0\"";
  const std::pair<const char*, double> values[] = {
      {"lockstep_train_tokens_total", 5120},
      {"lockstep_train_samples_total", 160},
      {"lockstep_train_step", 10},
      {"lockstep_train_loss", 3.25},
      {"lockstep_train_validation_loss", 3.5},
      {"lockstep_train_tokens_per_second", 2000},
      {"lockstep_train_learning_rate", 0.001},
      {"lockstep_train_gradient_norm", 0.5},
      {"lockstep_agent_worker_restarts_total", 2},
      {"lockstep_agent_round", 2},
      {"lockstep_agent_workers_running", 2},
  };
  for (const auto& [name, value] : values) {
    EXPECT_DOUBLE_EQ(text.value(name + labels + "}"), value) << name;
  }
  EXPECT_DOUBLE_EQ(
      text.value("lockstep_train_step_seconds" + labels + ",rank=\"1\",part=\"update\"}"), 0.005);
}

TEST_F(AgentTest, ReportsProgressAndTheCheckpointOfItsWorkers) {
  AgentProcess agent({.job_uid = uid_});
  agent.put(order("step:10"));
  const AgentState state =
      agent.wait_for([](const AgentState& s) { return s.progress && s.progress->step == 10; });
  EXPECT_EQ(state.progress->tokens, 5120);
  EXPECT_DOUBLE_EQ(*state.progress->loss, 3.25);
  EXPECT_EQ(state.workers.at(0).phase, WorkerPhase::kTraining);
  EXPECT_EQ(state.last_checkpoint->path, "/ckpt/step-00000005");
}

TEST_F(AgentTest, NamesThePortThatIsTakenAndGivesUp) {
  AgentProcess first({.job_uid = uid_});
  const std::string address = "127.0.0.1:" + std::to_string(first.port());
  AgentProcess second({.job_uid = new_uid(), .listen = address});
  EXPECT_EQ(second.port(), 0);
  EXPECT_EQ(second.wait_for_exit(), 1);
  EXPECT_TRUE(contains(second.stderr_text(), address + " is taken")) << second.stderr_text();
}

}  // namespace
}  // namespace lockstep
