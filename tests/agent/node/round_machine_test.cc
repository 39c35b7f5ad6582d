#include "agent/node/round_machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <utility>

#include "common/api/worker_config.h"
#include "tests/agent/node/assignments.h"

namespace lockstep::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Actions = std::vector<Action>;

// A state machine with a manual clock, whose actions are not carried out.
struct Bench {
  ManualClock clock;
  RoundMachine machine{{"uid-1", "boot", 0, 1}, {}};

  Status assign(const Assignment& assignment) { return machine.assign(assignment, clock.now()); }
  Actions step() { return machine.step(clock.now()); }
  AgentState state() { return machine.state(clock.now()); }

  // Brings the machine to the point where the workers of that assignment run.
  void run(const AssignmentOptions& options) {
    ASSERT_TRUE(assign(make_assignment(options)).ok());
    ASSERT_EQ(step(), Actions{Action::kKill});
    machine.all_processes_gone();
    ASSERT_EQ(step(), Actions{Action::kSpawn});
    for (int64_t local_rank = 0; local_rank < options.processes; ++local_rank) {
      machine.spawned(local_rank, 100 + local_rank);
    }
    ASSERT_EQ(step(), Actions{});
  }
  void end(int64_t local_rank, const WorkerEnd& end) {
    machine.exited(machine.round(), local_rank, end, clock.now());
  }
};

WorkerEnd code(int64_t exit_code) {
  return {.exit_code = exit_code, .log_tail = "the end\n"};
}
WorkerEnd killed_by(int64_t signal) {
  return {.exit_code = 128 + signal, .signal = signal};
}

TEST(RoundMachine, IsIdleAndSaysWhoItIsBeforeAnyAssignment) {
  Bench bench;
  EXPECT_EQ(bench.step(), Actions{});
  const AgentState state = bench.state();
  EXPECT_EQ(state.phase, "Idle");
  EXPECT_EQ(state.boot_id, "boot");
  EXPECT_EQ(state.round, 0);
  EXPECT_EQ(state.sequence, 1);
  EXPECT_FALSE(bench.machine.next_deadline());
}

struct RefusalCase {
  const char* name;
  std::function<void(Assignment&)> change;
  Code code;
};

TEST(RoundMachine, RefusesWhatIsNotForItOrOlderAndChangesNothing) {
  const RefusalCase cases[] = {
      {"job", [](Assignment& a) { a.world.job_uid = "other"; }, Code::kInvalid},
      {"node", [](Assignment& a) { a.node_index = 1; }, Code::kInvalid},
      {"node outside", [](Assignment& a) { a.world.members.clear(); }, Code::kInvalid},
      {"incarnation", [](Assignment& a) { a.world.members[0].incarnation = 2; }, Code::kConflict},
      {"older", [](Assignment& a) { a.world.round = 4; }, Code::kConflict},
      {"no round", [](Assignment& a) { a.world.round = 0; }, Code::kConflict},
      {"hash", [](Assignment& a) { a.hash = "0123"; }, Code::kConflict},
      {"nothing to run", [](Assignment& a) { a.train.reset(); }, Code::kInvalid},
      {"older exit", [](Assignment& a) { a.action = "Exit", a.world.round = 4; }, Code::kConflict},
      {"exit of another", [](Assignment& a) { a.action = "Exit", a.hash = "x"; }, Code::kConflict},
  };
  for (const RefusalCase& refusal : cases) {
    Bench bench;
    bench.run({.round = 5});
    const AgentState before = bench.state();
    Assignment assignment = make_assignment({.round = 5});
    refusal.change(assignment);
    const Status status = bench.assign(assignment);
    ASSERT_FALSE(status.ok()) << refusal.name;
    EXPECT_EQ(status.error().code, refusal.code) << refusal.name << ": " << status.error().message;
    EXPECT_EQ(bench.step(), Actions{}) << refusal.name;
    EXPECT_EQ(bench.state(), before) << refusal.name;
  }
}

TEST(RoundMachine, TakesItsRanksFromItsPlaceInEachRound) {
  NodeIdentity third{.job_uid = "uid-1", .boot_id = "boot", .node_index = 2, .incarnation = 1};
  RoundMachine machine(third, {});
  ManualClock clock;
  const auto ranks_with = [&](AssignmentOptions options) {
    options.nodes = 4;
    options.processes = 2;
    Assignment assignment = make_assignment(options);
    assignment.node_index = 2;
    const Status status = machine.assign(assignment, clock.now());
    EXPECT_TRUE(status.ok()) << status.error().message;
    static_cast<void>(machine.step(clock.now()));
    std::vector<int64_t> ranks;
    for (const WorkerState& worker : machine.state(clock.now()).workers) {
      ranks.push_back(worker.rank);
    }
    return ranks;
  };
  EXPECT_EQ(ranks_with({.round = 1}), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(ranks_with({.round = 2, .left_out = {1}}), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(ranks_with({.round = 3, .left_out = {0, 1}}), (std::vector<int64_t>{0, 1}));
  Assignment without = make_assignment({.round = 4, .nodes = 4, .left_out = {2}});
  without.node_index = 2;
  const Status refused = machine.assign(without, clock.now());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "[assignment] expected node 2 and a round that has it, got node 2 and a round of 3 "
            "nodes");
  EXPECT_EQ(ranks_with({.round = 5}), (std::vector<int64_t>{4, 5})) << "it came back";
}

TEST(RoundMachine, DoesNothingForTheSameAssignmentAgain) {
  Bench bench;
  bench.run({.round = 5});
  const AgentState before = bench.state();
  EXPECT_TRUE(bench.assign(make_assignment({.round = 5})).ok());
  EXPECT_EQ(bench.step(), Actions{});
  EXPECT_EQ(bench.state(), before);
}

TEST(RoundMachine, EndsEveryProcessBeforeItSpawnsANewerRound) {
  Bench bench;
  bench.run({.round = 1, .processes = 2});
  ASSERT_TRUE(bench.assign(make_assignment({.round = 2, .processes = 2})).ok());
  EXPECT_EQ(bench.step(), Actions{Action::kKill});
  EXPECT_EQ(bench.state().phase, "Starting");
  bench.machine.exited(1, 0, killed_by(SIGKILL), bench.clock.now());  // a worker of the old round
  EXPECT_EQ(bench.step(), Actions{}) << "the other may still be alive";
  bench.machine.all_processes_gone();
  EXPECT_EQ(bench.step(), Actions{Action::kSpawn});
  bench.machine.spawned(0, 7);
  bench.machine.spawned(1, 8);
  bench.step();
  const AgentState state = bench.state();
  EXPECT_EQ(state.phase, "Running");
  EXPECT_EQ(state.round, 2);
  EXPECT_EQ(state.failed_seconds_ago, 0);
  EXPECT_EQ(state.workers.at(1).pid, 8);
  EXPECT_TRUE(state.workers.at(1).running);
  EXPECT_EQ(state.workers.at(1).reason, "");
}

TEST(RoundMachine, LetsWorkersLeaveTheRoundBeforeForAMoment) {
  Bench bench;
  bench.run({.round = 5});
  EXPECT_FALSE(bench.machine.lets_workers_leave(bench.clock.now()));
  ASSERT_TRUE(bench.assign(make_assignment({.round = 6})).ok());
  EXPECT_EQ(bench.step(), Actions{Action::kKill});
  EXPECT_TRUE(bench.machine.clearing());
  EXPECT_TRUE(bench.machine.lets_workers_leave(bench.clock.now()));
  bench.clock.advance(RoundLimits().leave_limit);
  EXPECT_TRUE(bench.machine.clearing());
  EXPECT_FALSE(bench.machine.lets_workers_leave(bench.clock.now()));
  bench.machine.all_processes_gone();
  EXPECT_EQ(bench.step(), Actions{Action::kSpawn});
  EXPECT_FALSE(bench.machine.clearing());
}

TEST(RoundMachine, TakesTheNewestOfSeveralRoundsThatComeWhileItClears) {
  Bench bench;
  bench.run({.round = 1});
  ASSERT_TRUE(bench.assign(make_assignment({.round = 2})).ok());
  bench.step();
  ASSERT_TRUE(bench.assign(make_assignment({.round = 4})).ok());
  EXPECT_FALSE(bench.assign(make_assignment({.round = 3})).ok());
  bench.step();
  bench.machine.all_processes_gone();
  EXPECT_EQ(bench.step(), Actions{Action::kSpawn});
  EXPECT_EQ(bench.machine.assignment().world.round, 4);
}

struct EndCase {
  WorkerEnd end;
  const char* reason;
  const char* phase;
};

TEST(RoundMachine, NamesTheReasonOfAnExit) {
  WorkerEnd oom = killed_by(SIGKILL);
  oom.oom_killed = true;
  const EndCase cases[] = {{code(0), "Completed", "Completed"},
                           {code(1), "Error", "Failed"},
                           {code(kExitPeerLost), "Error", "Failed"},
                           {code(kExitStopped), "Error", "Failed"},
                           {code(kExitNotFinite), "LossNotFinite", "Failed"},
                           {code(kExitLossSpike), "LossSpike", "Failed"},
                           {killed_by(SIGSEGV), "Signal", "Failed"},
                           {killed_by(SIGKILL), "Signal", "Failed"},
                           {oom, "OOMKilled", "Failed"}};
  for (const EndCase& item : cases) {
    Bench bench;
    bench.run({});
    bench.end(0, item.end);
    bench.step();
    const WorkerState worker = bench.state().workers.at(0);
    EXPECT_EQ(worker.reason, item.reason) << item.end.exit_code;
    EXPECT_EQ(bench.state().phase, item.phase) << item.end.exit_code;
    EXPECT_EQ(worker.exit_code, item.end.exit_code);
    EXPECT_EQ(worker.signal, item.end.signal);
    EXPECT_FALSE(worker.running);
  }
}

TEST(RoundMachine, LeavesTheOthersRunningWhenOneFails) {
  Bench bench;
  bench.run({.processes = 2});
  bench.end(1, code(9));
  EXPECT_EQ(bench.step(), Actions{});
  bench.clock.advance(seconds(3));
  const AgentState state = bench.state();
  EXPECT_EQ(state.phase, "Failed");
  EXPECT_TRUE(state.workers.at(0).running);
  EXPECT_EQ(state.workers.at(1).log_tail, "the end\n");
  EXPECT_DOUBLE_EQ(state.failed_seconds_ago, 3);
  bench.end(0, code(kExitPeerLost));
  bench.step();
  EXPECT_EQ(bench.machine.first_failure()->local_rank, 1) << "the first, not the last";
}

TEST(RoundMachine, IsCompletedOnlyWhenAllHaveEndedWithZero) {
  Bench bench;
  bench.run({.processes = 2});
  bench.end(0, code(0));
  bench.step();
  EXPECT_EQ(bench.state().phase, "Running");
  bench.end(1, code(0));
  bench.step();
  EXPECT_EQ(bench.state().phase, "Completed");
  EXPECT_EQ(bench.state().workers.at(0).log_tail, "") << "only failures show their log";
}

TEST(RoundMachine, SaysThatAWorkerCouldNotBeStarted) {
  Bench bench;
  ASSERT_TRUE(bench.assign(make_assignment({})).ok());
  bench.step();
  bench.machine.all_processes_gone();
  bench.step();
  bench.machine.start_failed(0, "no such file", bench.clock.now());
  bench.step();
  const AgentState state = bench.state();
  EXPECT_EQ(state.phase, "Failed");
  EXPECT_EQ(state.workers.at(0).reason, "StartError");
  EXPECT_EQ(state.workers.at(0).exit_code, 127);
  EXPECT_EQ(state.workers.at(0).log_tail, "no such file");
}

TEST(RoundMachine, GivesWorkersTheirGraceWhenToldToExitAndKillsTheRest) {
  Bench bench;
  bench.run({.processes = 2, .grace_seconds = 7});
  Assignment exit = make_assignment({.processes = 2, .grace_seconds = 7});
  exit.action = "Exit";
  exit.exit_code = 3;
  ASSERT_TRUE(bench.assign(exit).ok());
  EXPECT_EQ(bench.step(), Actions{Action::kTerminate});
  EXPECT_EQ(bench.state().phase, "Stopping");
  bench.end(0, code(kExitStopped));
  bench.clock.advance(seconds(7) - milliseconds(1));
  EXPECT_EQ(bench.step(), Actions{});
  EXPECT_TRUE(bench.assign(exit).ok()) << "again is nothing new";
  EXPECT_EQ(bench.step(), Actions{});
  bench.clock.advance(milliseconds(1));
  EXPECT_EQ(bench.step(), Actions{Action::kKill});
  bench.end(1, killed_by(SIGKILL));
  bench.machine.all_processes_gone();
  EXPECT_EQ(bench.step(), Actions{Action::kQuit});
  EXPECT_EQ(bench.machine.exit_code(), 3);
  EXPECT_EQ(bench.state().phase, "Exiting");
  EXPECT_EQ(bench.state().workers.at(0).reason, "Stopped");
  EXPECT_EQ(bench.state().workers.at(1).reason, "Stopped");
}

TEST(RoundMachine, ACommandThatEndsWithZeroWhenItIsToldToEndHasNotCompleted) {
  struct Case {
    bool is_train;
    const char* reason;
    const char* of_the_earlier;
  };
  for (const Case& test : {Case{false, "Stopped", "Completed"}, {true, "Completed", "Completed"}}) {
    Bench bench;
    Assignment assignment = make_assignment({.processes = 2});
    if (!test.is_train) {
      assignment.train.reset();
      assignment.command = {"python", "train.py"};
    }
    ASSERT_TRUE(bench.assign(assignment).ok());
    bench.step();
    bench.machine.all_processes_gone();
    bench.step();
    bench.machine.spawned(0, 7);
    bench.machine.spawned(1, 8);
    bench.end(0, code(0));
    bench.machine.terminate(bench.clock.now());
    bench.step();
    bench.end(1, code(0));
    bench.step();
    EXPECT_EQ(bench.state().workers.at(0).reason, test.of_the_earlier);
    EXPECT_EQ(bench.state().workers.at(1).reason, test.reason);
    EXPECT_EQ(bench.state().phase, test.is_train ? "Exiting" : "Stopping");
    EXPECT_EQ(bench.machine.exit_code(), test.is_train ? 0 : kExitStopped);
  }
}

TEST(RoundMachine, ExitsAsStoppedOnlyIfAllItsRanksSavedAndLeft) {
  const std::pair<WorkerEnd, int> cases[] = {{code(kExitStopped), kExitStopped},
                                             {killed_by(SIGTERM), 128 + SIGKILL},
                                             {killed_by(SIGKILL), 128 + SIGKILL},
                                             {code(kExitStorageError), kExitStorageError}};
  for (const auto& [end, exit_code] : cases) {
    Bench bench;
    bench.run({.processes = 2, .grace_seconds = 7});
    bench.machine.terminate(bench.clock.now());
    bench.step();
    bench.end(0, code(kExitStopped));
    bench.end(1, end);
    bench.step();
    bench.machine.note_told(bench.machine.sequence());
    EXPECT_EQ(bench.step(), Actions{Action::kKill});
    EXPECT_EQ(bench.machine.exit_code(), exit_code) << end.exit_code << " " << end.signal;
  }
}

TEST(RoundMachine, StaysAMomentUntilAControllerKnowsThatItsRanksSaved) {
  for (const bool is_told : {false, true}) {
    Bench bench;
    bench.run({.grace_seconds = 7});
    bench.machine.note_told(bench.machine.sequence());
    bench.machine.terminate(bench.clock.now());
    bench.step();
    bench.machine.note_told(bench.machine.sequence());
    bench.end(0, code(kExitStopped));
    EXPECT_EQ(bench.step(), Actions{}) << "this state is new";
    EXPECT_EQ(bench.state().workers.at(0).reason, "Stopped");
    EXPECT_EQ(bench.machine.next_deadline(), bench.clock.now() + seconds(1));
    if (is_told) bench.machine.note_told(bench.machine.sequence());
    if (!is_told) bench.clock.advance(seconds(1));
    EXPECT_EQ(bench.step(), Actions{Action::kKill});
    EXPECT_EQ(bench.machine.exit_code(), kExitStopped);
  }
}

TEST(RoundMachine, ExitsAsKilledIfTheTimeWasTooShort) {
  Bench bench;
  bench.run({.grace_seconds = 7});
  bench.machine.terminate(bench.clock.now());
  bench.step();
  bench.clock.advance(seconds(7));
  EXPECT_EQ(bench.step(), Actions{Action::kKill});
  EXPECT_EQ(bench.machine.exit_code(), 128 + SIGKILL);
}

TEST(RoundMachine, StartsNothingOnceItIsLeaving) {
  Bench bench;
  bench.run({});
  bench.machine.terminate(bench.clock.now());
  bench.step();
  const Status status = bench.assign(make_assignment({.round = 2}));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kConflict);
  EXPECT_EQ(bench.step(), Actions{});
}

struct LeaveCase {
  const char* name;
  std::function<void(Bench&)> before;
  int exit_code;
};

TEST(RoundMachine, LeavesWithTheResultAfterSigterm) {
  const LeaveCase cases[] = {
      {"idle", [](Bench&) {}, kExitStopped},
      {"completed", [](Bench& b) { b.run({}), b.end(0, code(0)); }, 0},
      {"failed", [](Bench& b) { b.run({}), b.end(0, code(5)); }, 5},
      {"saved for another pod", [](Bench& b) { b.run({}), b.end(0, code(kExitStopped)); },
       kExitStopped},
  };
  for (const LeaveCase& item : cases) {
    Bench bench;
    item.before(bench);
    bench.machine.terminate(bench.clock.now());
    EXPECT_EQ(bench.step(), Actions{Action::kTerminate}) << item.name;
    EXPECT_EQ(bench.step(), Actions{Action::kKill}) << item.name;
    bench.machine.all_processes_gone();
    EXPECT_EQ(bench.step(), Actions{Action::kQuit}) << item.name;
    EXPECT_EQ(bench.machine.exit_code(), item.exit_code) << item.name;
  }
}

TEST(RoundMachine, HoldsAfterTheEndForAsLongAsAControllerSpeaks) {
  Bench bench;
  bench.run({});
  bench.end(0, code(6));
  bench.clock.advance(std::chrono::minutes(9));
  EXPECT_EQ(bench.step(), Actions{});
  bench.machine.note_controller_contact(bench.clock.now());
  bench.clock.advance(std::chrono::minutes(9));
  EXPECT_EQ(bench.step(), Actions{});
  bench.clock.advance(std::chrono::minutes(1));
  EXPECT_EQ(bench.machine.next_deadline(), bench.clock.now());
  EXPECT_EQ(bench.step(), Actions{Action::kKill});
  bench.machine.all_processes_gone();
  EXPECT_EQ(bench.step(), Actions{Action::kQuit});
  EXPECT_EQ(bench.machine.exit_code(), 6);
}

TEST(RoundMachine, LeavesInTheEndEvenIfAKilledProcessStays) {
  Bench bench;
  bench.run({.grace_seconds = 1});
  bench.machine.terminate(bench.clock.now());
  bench.step();
  bench.clock.advance(seconds(1));
  EXPECT_EQ(bench.step(), Actions{Action::kKill});
  bench.clock.advance(seconds(10));
  EXPECT_EQ(bench.step(), Actions{Action::kQuit});
}

ProgressNumbers numbers_at(int64_t step, WorkerPhase phase = WorkerPhase::kTraining) {
  ProgressNumbers numbers;
  numbers.round = 1;
  numbers.phase = phase;
  numbers.step = step;
  numbers.steps = 100;
  numbers.tokens = step * 512;
  numbers.loss = 3.5;
  numbers.validation_loss = std::nan("");
  return numbers;
}

TEST(RoundMachine, PublishesPhasesAtOnceAndMereProgressAtMostTwiceASecond) {
  Bench bench;
  bench.run({});
  const auto report = [&](const ProgressNumbers& numbers) {
    bench.machine.progress(1, 0, numbers, bench.clock.wall_now());
    bench.step();
    return bench.machine.sequence();
  };
  const int64_t before = bench.machine.sequence();
  EXPECT_EQ(report(numbers_at(1)), before + 1) << "a new phase";
  EXPECT_EQ(report(numbers_at(2)), before + 1) << "too soon";
  EXPECT_EQ(bench.state().progress->step, 1);
  bench.clock.advance(milliseconds(500));
  EXPECT_EQ(bench.machine.next_deadline(), bench.clock.now());
  bench.step();
  EXPECT_EQ(bench.machine.sequence(), before + 2);
  EXPECT_EQ(bench.state().progress->step, 2);
  EXPECT_EQ(report(numbers_at(2, WorkerPhase::kSaving)), before + 3);
  EXPECT_FALSE(bench.machine.next_deadline());
}

TEST(RoundMachine, TellsHowLongARoundTookToBegin) {
  Bench bench;
  ASSERT_TRUE(bench.assign(make_assignment({.processes = 2})).ok());
  ASSERT_EQ(bench.step(), Actions{Action::kKill});
  bench.clock.advance(milliseconds(250));
  bench.machine.all_processes_gone();
  ASSERT_EQ(bench.step(), Actions{Action::kSpawn});
  for (int64_t i : {0, 1}) bench.machine.spawned(i, 100 + i);
  bench.step();
  bench.clock.advance(milliseconds(500));
  bench.machine.progress(1, 0, numbers_at(0, WorkerPhase::kForming), {});
  bench.step();
  EXPECT_FALSE(bench.state().beginning);
  bench.clock.advance(milliseconds(125));
  bench.machine.progress(1, 1, numbers_at(0, WorkerPhase::kLoading), {});
  bench.step();
  ASSERT_TRUE(bench.state().beginning);
  EXPECT_EQ(bench.state().beginning->abort_seconds, 0.25);
  EXPECT_EQ(bench.state().beginning->start_seconds, 0.625);
  bench.clock.advance(seconds(1));
  bench.machine.progress(1, 0, numbers_at(0, WorkerPhase::kTraining), {});
  bench.step();
  EXPECT_EQ(bench.state().beginning->start_seconds, 0.625);
  ASSERT_TRUE(bench.assign(make_assignment({.round = 2, .processes = 2})).ok());
  bench.step();
  EXPECT_FALSE(bench.state().beginning) << "another round";
}

TEST(RoundMachine, ReportsTheLargestOfWhatTheNodesRanksHold) {
  Bench bench;
  bench.run({.processes = 2});
  const auto report = [&](int64_t local_rank, const Holdings& holdings) {
    ProgressNumbers numbers = numbers_at(0);
    numbers.holdings = holdings;
    bench.machine.progress(bench.machine.round(), local_rank, numbers, bench.clock.wall_now());
    bench.clock.advance(std::chrono::minutes(1));
    bench.step();
  };
  report(0, {});
  EXPECT_FALSE(bench.state().holdings) << "not allocated yet";
  report(0, {.parameters_bytes = 100, .gradients_bytes = 7, .sharding_ranks = 2});
  report(1, {.parameters_bytes = 90,
             .gradients_bytes = 8,
             .optimizer_bytes = 3,
             .gathered_bytes = 4,
             .activations_bytes = 5,
             .offloaded_bytes = uint64_t{1} << 60,
             .sharding_ranks = 2});
  EXPECT_EQ(bench.state().holdings, (HoldingsStatus{.sharding = "none",
                                                    .shardingRanks = 2,
                                                    .parametersBytes = 100,
                                                    .gradientsBytes = 8,
                                                    .optimizerBytes = 3,
                                                    .gatheredBytes = 4,
                                                    .activationsBytes = 5,
                                                    .offloadedBytes = int64_t{1} << 53}));
  bench.run({.round = 2, .processes = 2});
  EXPECT_FALSE(bench.state().holdings) << "of another round";
}

TEST(RoundMachine, LeavesOutOfProgressWhatIsNotFiniteAndNamesTheCheckpoint) {
  Bench bench;
  bench.run({.processes = 2});
  ProgressNumbers numbers = numbers_at(40);
  numbers.loss = std::numeric_limits<double>::infinity();
  numbers.checkpoint_step = 30;
  numbers.suspect_rank = 1;
  numbers.micro_batch = 6;
  bench.machine.progress(1, 0, numbers, bench.clock.wall_now());
  numbers.step = 41;
  bench.machine.progress(1, 1, numbers, bench.clock.wall_now());
  numbers.step = 99;
  bench.machine.progress(2, 0, numbers, bench.clock.wall_now());  // from another round
  bench.step();
  const AgentState state = bench.state();
  EXPECT_FALSE(state.progress->loss);
  EXPECT_FALSE(state.progress->validation_loss);
  EXPECT_EQ(state.progress->step, 40) << "of the lowest rank";
  EXPECT_EQ(state.workers.at(1).step, 41);
  EXPECT_EQ(state.workers.at(1).suspect_rank, 1);
  EXPECT_EQ(state.workers.at(1).micro_batch, 6);
  EXPECT_EQ(state.last_checkpoint->path, "/ckpt/step-00000030");

  numbers.step = 42;
  numbers.checkpoint_step = -1;
  bench.machine.progress(1, 0, numbers, bench.clock.wall_now());
  bench.clock.advance(std::chrono::minutes(1));
  bench.step();
  EXPECT_FALSE(bench.state().last_checkpoint) << "those of earlier rounds were set aside";
}

TEST(RoundMachine, ReportsThePrecisionInUseAndTheRanksThatLackBf16) {
  Bench bench;
  bench.run({.processes = 2});
  bench.machine.progress(1, 0, numbers_at(1), bench.clock.wall_now());
  bench.step();
  EXPECT_EQ(bench.state().progress->precision, "") << "not known yet";
  ProgressNumbers numbers = numbers_at(2);
  numbers.precision = PrecisionInUse::kFp32;
  bench.machine.progress(1, 0, numbers, bench.clock.wall_now());
  numbers.lacks_bf16 = 1;
  bench.machine.progress(1, 1, numbers, bench.clock.wall_now());
  bench.step();
  EXPECT_EQ(bench.state().progress->precision, "fp32");
  EXPECT_FALSE(bench.state().workers[0].lacks_bf16);
  EXPECT_TRUE(bench.state().workers[1].lacks_bf16);
  numbers.precision = PrecisionInUse::kBf16;
  bench.machine.progress(1, 0, numbers, bench.clock.wall_now());
  bench.clock.advance(seconds(1));
  bench.step();
  EXPECT_EQ(bench.state().progress->precision, "bf16");
}

StorageNotes failed_at(int64_t step) {
  StorageNotes notes{.saved = 2, .failed = 1, .failed_step = step, .resumed_step = 30};
  notes.failure.assign("no space left on device");
  return notes;
}

TEST(RoundMachine, ReportsWhatRankZeroSaysOfTheStorage) {
  Bench bench;
  bench.run({.processes = 2});
  bench.machine.storage(1, 1, failed_at(40));
  bench.step();
  EXPECT_FALSE(bench.state().storage) << "of another rank";
  StorageNotes notes = failed_at(40);
  notes.set_aside = 1;
  notes.set_aside_step = 35;
  notes.set_aside_reason.assign("step-35: \xff");
  bench.machine.storage(2, 0, notes);
  bench.step();
  EXPECT_FALSE(bench.state().storage) << "of another round";
  bench.machine.storage(1, 0, notes);
  bench.step();
  EXPECT_EQ(bench.state().storage, (StorageState{.saved = 2,
                                                 .failed_step = 40,
                                                 .failure = "no space left on device",
                                                 .set_aside = 1,
                                                 .set_aside_step = 35,
                                                 .set_aside_reason = "step-35: \ufffd",
                                                 .resumed_step = 30}));
  ASSERT_TRUE(bench.assign(make_assignment({.round = 2, .processes = 2})).ok());
  bench.step();
  EXPECT_FALSE(bench.state().storage) << "the next round has said nothing";
}

TEST(RoundMachine, TellsAtOnceThatSavesBeginToFailAndLaterWhichOnesFailSince) {
  Bench bench;
  bench.run({});
  int64_t sequence = bench.machine.sequence();
  const auto grows_by = [&](const StorageNotes& notes) {
    bench.machine.storage(1, 0, notes);
    bench.step();
    return bench.machine.sequence() - std::exchange(sequence, bench.machine.sequence());
  };
  EXPECT_EQ(grows_by(failed_at(40)), 1);
  EXPECT_EQ(grows_by(failed_at(41)), 0);
  StorageNotes notes = failed_at(42);
  notes.saved = 7;
  notes.failure.assign("input/output error");
  EXPECT_EQ(grows_by(notes), 0);
  bench.clock.advance(seconds(1));
  EXPECT_EQ(grows_by(notes), 1);
  EXPECT_EQ(bench.state().storage->failed_step, 42);
  notes.failed_step = -1;
  EXPECT_EQ(grows_by(notes), 1) << "they succeed again";
  notes.set_aside_step = 20;
  EXPECT_EQ(grows_by(notes), 1);
}

TEST(RoundMachine, APageWithAnyNumbersMakesAStateThatTheControllerReads) {
  Bench bench;
  bench.run({});
  StorageNotes notes{.saved = -1, .failed_step = -9, .set_aside = -1, .set_aside_step = -9};
  notes.resumed_step = std::numeric_limits<int64_t>::min();
  notes.failure.bytes.fill('\xff');
  bench.machine.storage(1, 0, notes);
  bench.step();
  const Result<AgentState> read = agent_state_from_json(to_json(bench.state()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->storage->failed_step, -1);
}

TEST(RoundMachine, AWaitChangesTheStateOnceAndItsTimeIsThatOfTheAsking) {
  Bench bench;
  bench.run({.processes = 2});
  const int64_t before = bench.machine.sequence();
  BoardWatch::RankHealth health{.wait = WorkerWait{.operation = "barrier #3", .waits_for = {0}},
                                .waits_since = bench.clock.now() - seconds(10)};
  bench.machine.update_health(bench.machine.round(), 1, health);
  bench.step();
  EXPECT_EQ(bench.machine.sequence(), before + 1);
  bench.clock.advance(seconds(5));
  bench.machine.update_health(bench.machine.round(), 1, health);
  bench.step();
  EXPECT_EQ(bench.machine.sequence(), before + 1);
  ASSERT_TRUE(bench.state().workers[1].wait);
  EXPECT_EQ(bench.state().workers[1].wait->seconds, 15);
  EXPECT_FALSE(bench.state().workers[0].wait);
  bench.machine.update_health(bench.machine.round() - 1, 1, {.is_lifeless = true});
  EXPECT_FALSE(bench.state().workers[1].is_lifeless) << "of an earlier round";
  bench.end(1, killed_by(SIGKILL));
  bench.step();
  EXPECT_FALSE(bench.state().workers[1].wait);
}

// The machine's node is a server, the second of two; node 0 is the worker.
Assignment with_servers(const std::string& view) {
  TrainingJobSpec spec;
  spec.nodes = 1;
  spec.parameterServers = ParameterServersSpec{.nodes = 2, .copies = 1};
  WorldInput input{.job_uid = "uid-1", .round = 1, .members = {}};
  for (int64_t node = 0; node < 3; ++node) {
    input.members.push_back({.index = node,
                             .incarnation = 1,
                             .host = "127.0.0." + std::to_string(node + 1),
                             .port = 29500,
                             .role = role_of_node(spec, node)});
  }
  Assignment assignment = make_assignment({});
  assignment.world = *make_world(spec, input);
  assignment.hash = world_hash(assignment.world);
  assignment.parameter_servers = spec.parameterServers;
  assignment.node_index = 2;
  assignment.servers_view = view;
  return assignment;
}

// Its process runs, in the first view.
struct ServerBench : Bench {
  ServerBench() {
    machine = RoundMachine{{"uid-1", "boot", 2, 1}, {}};
    EXPECT_TRUE(assign(with_servers("")).ok());
    start(100);
  }
  void start(int64_t pid) {
    EXPECT_EQ(step(), Actions{Action::kKill});
    machine.all_processes_gone();
    EXPECT_EQ(step(), Actions{Action::kSpawn});
    machine.spawned(0, pid);
    step();
  }
};

TEST(RoundMachine, PassesViewsOfTheServersOn) {
  ServerBench bench;
  EXPECT_EQ(bench.state().servers_view, 1);
  EXPECT_EQ(bench.state().servers_started, 1);
  ASSERT_TRUE(bench.assign(with_servers("2:-2,1")).ok());
  EXPECT_EQ(bench.step(), Actions{Action::kGiveView}) << "the other one is gone";
  EXPECT_EQ(bench.machine.assignment().servers_view, "2:-2,1");
  EXPECT_EQ(bench.state().servers_view, 2);
  EXPECT_EQ(bench.state().servers_started, 1);
  EXPECT_EQ(bench.state().workers.front().pid, 100);
  ASSERT_TRUE(bench.assign(with_servers("2:-2,1")).ok());
  EXPECT_EQ(bench.step(), Actions{}) << "again";
  ASSERT_TRUE(bench.assign(with_servers("")).ok()) << "an older one";
  EXPECT_EQ(bench.step(), Actions{});
  EXPECT_EQ(bench.assign(with_servers("2:1,-2")).error().code, Code::kConflict);
  EXPECT_EQ(bench.state().servers_view, 2);
}

TEST(RoundMachine, TakesTheRoundOfAPodWhosePlaceItTook) {
  const Assignment moved = with_servers("3:1,-3@1/127.0.0.3>2/127.0.0.7");
  for (const auto& [incarnation, fits] : {std::pair(2, true), {1, false}, {3, false}}) {
    RoundMachine machine({"uid-1", "boot", moved.node_index, incarnation}, {});
    const Status taken = machine.assign(moved, TimePoint());
    EXPECT_EQ(taken.ok(), fits) << incarnation;
    if (!fits) {
      EXPECT_EQ(taken.error().code, Code::kConflict);
    }
  }
}

TEST(RoundMachine, StartsAServerAnewThatIsGone) {
  ServerBench bench;
  bench.end(0, killed_by(SIGKILL));
  EXPECT_EQ(bench.step(), Actions{});
  EXPECT_EQ(bench.state().phase, "Failed");
  ASSERT_TRUE(bench.assign(with_servers("2:1,-2")).ok());
  EXPECT_EQ(bench.state().servers_started, 1);
  bench.start(200);
  const AgentState state = bench.state();
  EXPECT_EQ(state.phase, "Running");
  EXPECT_EQ(state.round, 1);
  EXPECT_EQ(state.servers_view, 2);
  EXPECT_EQ(state.servers_started, 2);
  EXPECT_EQ(state.workers.front().pid, 200);
  EXPECT_EQ(bench.machine.first_failure(), nullptr);
  ASSERT_TRUE(bench.assign(with_servers("2:1,-2")).ok());
  EXPECT_EQ(bench.step(), Actions{}) << "once";
  ASSERT_TRUE(bench.assign(with_servers("3:1,+3")).ok());
  EXPECT_EQ(bench.step(), Actions{Action::kGiveView});
}

TEST(RoundMachine, KillsAServerThatIsGoneForTheOthers) {
  ServerBench bench;
  ASSERT_TRUE(bench.assign(with_servers("2:1,-2")).ok());
  bench.start(200);
  EXPECT_EQ(bench.state().servers_started, 2);
  bench.machine.exited(1, 0, killed_by(SIGKILL), bench.clock.now());
  EXPECT_EQ(bench.state().servers_started, 2);
}

TEST(RoundMachine, StartsAWorkerAnewOnceForEachViewThatSaysSo) {
  const auto worker_of = [](const std::string& view) {
    Assignment assignment = with_servers(view);
    assignment.node_index = 0;
    return assignment;
  };
  ServerBench bench;
  bench.machine = RoundMachine{{"uid-1", "boot", 0, 1}, {}};
  ASSERT_TRUE(bench.assign(worker_of("")).ok());
  bench.start(100);
  bench.end(0, killed_by(SIGKILL));
  EXPECT_EQ(bench.step(), Actions{});
  ASSERT_TRUE(bench.assign(worker_of("2:1,1;0@2")).ok());
  EXPECT_EQ(bench.state().servers_started, 1);
  bench.start(200);
  EXPECT_EQ(bench.state().phase, "Running");
  EXPECT_EQ(bench.state().round, 1);
  EXPECT_EQ(bench.state().servers_started, 2);
  EXPECT_EQ(bench.machine.assignment().servers_view, "2:1,1;0@2");
  ASSERT_TRUE(bench.assign(worker_of("3:1,-3;0@2")).ok());
  EXPECT_EQ(bench.step(), Actions{Action::kGiveView}) << "of another one's loss";
  ASSERT_TRUE(bench.assign(worker_of("4:1,-3;0@4")).ok());
  bench.start(300);
  EXPECT_EQ(bench.state().servers_started, 4);
}

TEST(RoundMachine, StartsAServerInTheNewestView) {
  ServerBench bench;
  bench.end(0, killed_by(SIGKILL));
  ASSERT_TRUE(bench.assign(with_servers("2:1,-2")).ok());
  EXPECT_EQ(bench.step(), Actions{Action::kKill});
  ASSERT_TRUE(bench.assign(with_servers("3:1,-3")).ok());
  EXPECT_EQ(bench.step(), Actions{});
  bench.machine.all_processes_gone();
  EXPECT_EQ(bench.step(), Actions{Action::kSpawn});
  EXPECT_EQ(bench.machine.assignment().servers_view, "3:1,-3");
  EXPECT_EQ(bench.state().servers_started, 3);
}

TEST(RoundMachine, TellsTheViewThatAProcessFollows) {
  ServerBench bench;
  ProgressNumbers numbers;
  numbers.phase = WorkerPhase::kTraining;
  numbers.servers_view = 2;
  numbers.is_filling = 1;
  bench.machine.progress(1, 0, numbers, {});
  const int64_t before = bench.machine.sequence_beyond_progress();
  bench.step();
  EXPECT_GT(bench.machine.sequence_beyond_progress(), before) << "it is told at once";
  EXPECT_EQ(bench.state().workers.front().servers_view, 2);
  EXPECT_TRUE(bench.state().workers.front().is_filling);
}

}  // namespace
}  // namespace lockstep::node
