// The agent's small parts: text, logs, launches, options, control groups, files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/node/cgroup.h"
#include "agent/node/files.h"
#include "agent/node/hang_watch.h"
#include "agent/node/launch.h"
#include "agent/node/options.h"
#include "agent/node/rank_environment.h"
#include "agent/node/worker_log.h"
#include "common/base/json.h"
#include "tests/agent/node/assignments.h"

namespace lockstep::node {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "lockstep-node-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

struct WatchedPage {
  HangWatch watch{std::chrono::seconds(20)};
  ProgressNumbers numbers;
  TimePoint now{std::chrono::hours(1)};

  // Looks once a second for `seconds`. Returns whether a hang was detected.
  bool look_for(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      now += std::chrono::seconds(1);
      if (watch.is_hung(numbers, now)) return true;
    }
    return false;
  }
  void train(int steps, int seconds_each) {
    numbers.phase = WorkerPhase::kTraining;
    for (int i = 0; i < steps; ++i) {
      numbers.step = numbers.step.value_or(0) + 1;
      EXPECT_FALSE(look_for(seconds_each));
    }
  }
};

TEST(SilenceWatch, FindsAProgramThatGivesNoSignAfterTheFirst) {
  using std::chrono::seconds;
  SilenceWatch watch{seconds(3)};
  TimePoint now{};
  const auto poll = [&](uint64_t signs) { return watch.is_silent(signs, now += seconds(1)); };
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(poll(0)) << "it has not begun";
  EXPECT_FALSE(poll(1));
  EXPECT_FALSE(poll(1));
  EXPECT_FALSE(poll(1));
  EXPECT_TRUE(poll(1));
  EXPECT_FALSE(poll(2));
  now += seconds(60);  // nobody looked
  EXPECT_FALSE(poll(2));
  EXPECT_FALSE(poll(2));
  EXPECT_FALSE(poll(2));
  EXPECT_TRUE(poll(2));
}

TEST(HangWatch, FindsAStepThatTakesFarLongerThanTheLastOnes) {
  WatchedPage page;
  page.train(8, 1);
  EXPECT_FALSE(page.look_for(18));
  EXPECT_TRUE(page.look_for(3));
  WatchedPage slow;
  slow.train(8, 30);
  EXPECT_FALSE(slow.look_for(110)) << "five steps";
  EXPECT_TRUE(slow.look_for(50));
  WatchedPage slower;
  slower.train(8, 1000);
  EXPECT_FALSE(slower.look_for(3900));
}

TEST(HangWatch, LeavesFirstStepsAndWhatIsNoStepAlone) {
  WatchedPage page;
  page.train(1, 500);
  page.train(8, 1);
  page.numbers.phase = WorkerPhase::kSaving;
  EXPECT_FALSE(page.look_for(2000));
  page.train(1, 15);
}

TEST(HangWatch, TimeInWhichNobodyLookedDoesNotCount) {
  WatchedPage page;
  page.train(8, 1);
  page.now += std::chrono::hours(1);
  EXPECT_FALSE(page.look_for(17)) << "the whole pod stood still";
  EXPECT_TRUE(page.look_for(5));
}

TEST(WorkerLog, WritesCleanLinesAndKeepsTheEnd) {
  const Folder folder;
  WorkerLog log({.path = folder / "log", .tail_bytes_max = 12}, nullptr);
  log.append("first li");
  log.append("ne\nsecond\xFF\nthi");
  EXPECT_EQ(text_of(folder / "log"), "first line\nsecond\xEF\xBF\xBD\n");
  log.finish();
  EXPECT_EQ(text_of(folder / "log"), "first line\nsecond\xEF\xBF\xBD\nthi\n");
  EXPECT_EQ(log.tail(), "cond\xEF\xBF\xBD\nthi\n") << "12 bytes at most, whole characters";
}

TEST(WorkerLog, BreaksLinesThatNeverEnd) {
  const Folder folder;
  WorkerLog log({.path = folder / "log", .line_bytes_max = 10}, nullptr);
  log.append(std::string(25, 'x'));
  log.finish();
  EXPECT_EQ(text_of(folder / "log"), "xxxxxxxxxx\nxxxxxxxxxx\nxxxxx\n");
}

TEST(WorkerLog, RotatesAndKeepsOneOldFile) {
  const Folder folder;
  WorkerLog log({.path = folder / "log", .file_bytes_max = 20}, nullptr);
  for (const char* line : {"one------", "two------", "three----", "four-----", "five-----"}) {
    log.append(std::string(line) + "\n");
  }
  EXPECT_EQ(text_of(folder / "log"), "five-----\n");
  EXPECT_EQ(text_of(folder / "log.1"), "three----\nfour-----\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "log.1.1"));
}

TEST(WorkerLog, GoesOnWhereAnEarlierRoundEnded) {
  const Folder folder;
  put(folder / "log", "round 1\n");
  WorkerLog log({.path = folder / "log", .file_bytes_max = 20}, nullptr);
  log.append("round 2\n");
  EXPECT_EQ(text_of(folder / "log"), "round 1\nround 2\n");
  log.append("round 2, more\n");
  EXPECT_EQ(text_of(folder / "log.1"), "round 1\nround 2\n") << "what was there counts too";
}

TEST(OutputQueue, NeverWaitsForAReaderAndSaysWhatItLeftOut) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  OutputQueue queue(pipe_fds[1], {.bytes_max = 128 * 1024});
  const std::string line = std::string(1023, 'x') + "\n";
  for (int i = 0; i < 1000; ++i) {  // far more than a pipe and the queue hold
    queue.push(line);
    queue.flush();
  }
  EXPECT_TRUE(queue.pending());
  fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
  std::string seen;
  const auto read_all = [&] {
    std::string buffer(64 * 1024, '\0');
    for (ssize_t bytes; (bytes = read(pipe_fds[0], buffer.data(), buffer.size())) > 0;) {
      seen.append(buffer, 0, static_cast<size_t>(bytes));
    }
  };
  const auto drain = [&] {
    while (queue.pending()) {
      read_all();
      queue.flush();
    }
  };
  drain();
  queue.push("last\n");
  drain();
  read_all();
  const auto lines = std::count(seen.begin(), seen.end(), '\n') - 2;
  EXPECT_NE(seen.find("[agent] " + std::to_string(1000 - lines) + " lines dropped"),
            std::string::npos);
  EXPECT_TRUE(seen.ends_with("last\n"));
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(OutputQueue, ForgetsAReaderThatHasLeft) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  signal(SIGPIPE, SIG_IGN);
  OutputQueue queue(pipe_fds[1]);
  for (int i = 0; i < 200; ++i) queue.push(std::string(1023, 'x') + "\n");
  queue.flush();
  EXPECT_TRUE(queue.pending()) << "the pipe is full";
  close(pipe_fds[0]);
  queue.flush();
  EXPECT_FALSE(queue.pending());
  close(pipe_fds[1]);
}

TEST(OutputQueue, MakesTheWorkersWaitForASlowReaderButNotForOneThatTakesNothing) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  OutputQueue queue(pipe_fds[1],
                    {.pause_reading_above_bytes = 1000, .stall_limit = std::chrono::seconds(2)});
  TimePoint now{std::chrono::hours(1)};
  EXPECT_TRUE(queue.has_room(now));
  std::string block(64 * 1024 + 3000, 'x');  // more than the pipe holds
  queue.push(block + "\n");
  queue.flush();
  EXPECT_FALSE(queue.has_room(now));
  now += std::chrono::milliseconds(1900);
  EXPECT_FALSE(queue.has_room(now));
  ASSERT_EQ(read(pipe_fds[0], block.data(), 4096), 4096);
  queue.push(block + "\n");
  queue.flush();  // the reader took some bytes, so the time limit starts again
  now += std::chrono::milliseconds(1900);
  EXPECT_FALSE(queue.has_room(now));
  now += std::chrono::milliseconds(2000);
  EXPECT_TRUE(queue.has_room(now)) << "nobody reads: the ranks go on";
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

LaunchContext a_context() {
  return {.worker_binary = "/opt/bin/lockstep-worker",
          .work_folder = "/work",
          .token_file = "/token",
          .cpus = 5,
          .env = {"PATH=/bin", "RANK=99", "LOCKSTEP_REQUESTS=signed", "LOCKSTEP_NODE_INDEX=0"},
          .boot_id = "8f3a"};
}

bool has(const std::vector<std::string>& list, const std::string& entry) {
  return std::find(list.begin(), list.end(), entry) != list.end();
}

TEST(Launch, GivesAWorkerItsRankConfigAndEnvironment) {
  Assignment assignment = make_assignment({.round = 3, .nodes = 2, .processes = 2});
  assignment.node_index = 1;
  const Launch launch = make_launch(assignment, 1, a_context());
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.argv, (std::vector<std::string>{"/opt/bin/lockstep-worker", "--config",
                                                   "/work/rank-3.json"}));
  EXPECT_EQ(launch.log_path, "/work/logs/rank-3.log");
  for (const char* variable :
       {"RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2", "NODE_RANK=1",
        "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "LOCKSTEP_ROUND=3", "LOCKSTEP_JOB_UID=uid-1",
        "PATH=/bin", "LOCKSTEP_NODE_INDEX=0"}) {
    EXPECT_TRUE(has(launch.env, variable)) << variable;
  }
  EXPECT_FALSE(has(launch.env, "RANK=99"));
  EXPECT_FALSE(has(launch.env, "LOCKSTEP_REQUESTS=signed"));
  const auto read = worker_config_from_json(to_json(launch.config));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->threads, 2) << "5 CPUs for 2 processes";
  EXPECT_EQ(read->cpus, 5);
  EXPECT_EQ(read->token_file, "/token");
  EXPECT_EQ(read->boot_id, "8f3a");
  assignment.threads_per_process = 7;
  EXPECT_EQ(make_launch(assignment, 1, a_context()).config.threads, 7);
}

TEST(Launch, CountsPlacesAndNotNodeIndicesWhereARoundLeavesOutNodes) {
  Assignment assignment =
      make_assignment({.round = 3, .nodes = 4, .processes = 2, .left_out = {0, 2}});
  assignment.node_index = 3;
  EXPECT_EQ(make_launch(assignment, 1, a_context()).config.rank, 3);
  assignment.train.reset();
  assignment.command = {"python3", "train.py"};
  const Launch launch = make_launch(assignment, 1, a_context());
  EXPECT_EQ(launch.rank, 3);
  for (const char* variable : {"RANK=3", "WORLD_SIZE=4", "NODE_RANK=1", "GROUP_RANK=1",
                               "GROUP_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.2"}) {
    EXPECT_TRUE(has(launch.env, variable)) << variable;
  }
}

TEST(Launch, GivesTheRanksOfANodeItsGpusInTurn) {
  Assignment assignment = make_assignment({.nodes = 2, .processes = 4});
  EXPECT_EQ(make_launch(assignment, 3, a_context()).config.gpu, -1);
  EXPECT_EQ(make_launch(assignment, 3, a_context()).config.gpus, 0);
  assignment.gpus_per_node = 4;
  EXPECT_EQ(make_launch(assignment, 0, a_context()).config.gpu, 0);
  EXPECT_EQ(make_launch(assignment, 3, a_context()).config.gpu, 3);
  assignment.gpus_per_node = 2;  // two ranks per GPU
  EXPECT_EQ(make_launch(assignment, 1, a_context()).config.gpu, 1);
  EXPECT_EQ(make_launch(assignment, 3, a_context()).config.gpu, 1);
  const auto read =
      worker_config_from_json(to_json(make_launch(assignment, 3, a_context()).config));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->gpu, 1);
  EXPECT_EQ(read->gpus, 4);
}

TEST(Launch, HidesNoGpuFromACommand) {
  LaunchContext context = a_context();
  context.env.push_back("CUDA_VISIBLE_DEVICES=2,3");
  Assignment assignment = make_assignment({.nodes = 1, .processes = 2});
  assignment.train.reset();
  assignment.command = {"python3", "train.py"};
  assignment.gpus_per_node = 2;
  const std::vector<std::string> env = make_launch(assignment, 1, context).env;
  EXPECT_TRUE(has(env, "CUDA_VISIBLE_DEVICES=2,3"));
  EXPECT_TRUE(has(env, "LOCAL_RANK=1"));
}

TEST(Launch, RunsTheUsersCommandWithoutAConfig) {
  Assignment assignment = make_assignment({});
  assignment.train.reset();
  assignment.command = {"python3", "train.py"};
  const Launch launch = make_launch(assignment, 0, a_context());
  EXPECT_EQ(launch.argv, assignment.command);
  EXPECT_EQ(launch.config_path, "");
  EXPECT_EQ(launch.progress_path, "/work/progress/rank-0.jsonl");
  EXPECT_TRUE(has(launch.env, "MASTER_PORT=29500"));
}

// Rank 3 of 2 nodes x 2 processes, in the third round.
Assignment command_assignment(std::vector<std::string> variables = {}) {
  Assignment assignment = make_assignment({.round = 3, .nodes = 2, .processes = 2});
  assignment.train.reset();
  assignment.command = {"python3", "train.py"};
  assignment.variables = std::move(variables);
  assignment.node_index = 1;
  assignment.restarts = 2;
  assignment.max_restarts = 7;
  return assignment;
}

std::string value_of(const std::vector<std::string>& env, const std::string& name) {
  for (const std::string& entry : env) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return "(unset)";
}

TEST(Launch, TellsACommandWhatTorchrunTells) {
  const std::vector<std::string> env = make_launch(command_assignment(), 1, a_context()).env;
  const std::pair<const char*, const char*> variables[] = {
      {"RANK", "3"},
      {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"NODE_RANK", "1"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", "3"},
      {"ROLE_WORLD_SIZE", "4"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", "29500"},
      {"TORCHELASTIC_RESTART_COUNT", "2"},
      {"TORCHELASTIC_MAX_RESTARTS", "7"},
      {"TORCHELASTIC_RUN_ID", "uid-1"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"OMP_NUM_THREADS", "2"},
      {"NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"LOCKSTEP_JOB_UID", "uid-1"},
      {"LOCKSTEP_JOB_NAME", "wait"},
      {"LOCKSTEP_ROUND", "3"},
      {"LOCKSTEP_RESTARTS", "2"},
      {"LOCKSTEP_PROGRESS_FILE", "/work/progress/rank-3.jsonl"},
      {"LOCKSTEP_WORLD_FILE", "/work/world.json"},
      {"LOCKSTEP_CHECKPOINT_PATH", "/ckpt"},
      {"PATH", "/bin"},
      {"JAX_PROCESS_ID", "(unset)"},
      {"TF_CONFIG", "(unset)"},
      {"LOCKSTEP_HOSTFILE", "(unset)"},
  };
  for (const auto& [name, value] : variables) EXPECT_EQ(value_of(env, name), value) << name;
}

TEST(Launch, LeavesWhatTheUserHasSetOfThreads) {
  LaunchContext context = a_context();
  context.env.push_back("OMP_NUM_THREADS=9");
  EXPECT_EQ(value_of(make_launch(command_assignment(), 0, context).env, "OMP_NUM_THREADS"), "9");
  Assignment assignment = command_assignment();
  assignment.threads_per_process = 4;
  EXPECT_EQ(value_of(make_launch(assignment, 0, a_context()).env, "OMP_NUM_THREADS"), "4");
  assignment.checkpoint.path.clear();
  EXPECT_EQ(value_of(make_launch(assignment, 0, a_context()).env, "LOCKSTEP_CHECKPOINT_PATH"),
            "(unset)");
}

TEST(Launch, TellsACommandWhatJaxTensorflowAndMpiRead) {
  const Assignment assignment = command_assignment({"jax", "tensorflow", "mpi"});
  const std::vector<std::string> env = make_launch(assignment, 1, a_context()).env;
  EXPECT_EQ(value_of(env, "JAX_COORDINATOR_ADDRESS"), "127.0.0.1:29500");
  EXPECT_EQ(value_of(env, "JAX_NUM_PROCESSES"), "4");
  EXPECT_EQ(value_of(env, "JAX_PROCESS_ID"), "3");
  EXPECT_EQ(*parse_json(value_of(env, "TF_CONFIG")), *parse_json(R"({
      "cluster": {"worker": ["127.0.0.1:29500", "127.0.0.1:29501",
                             "127.0.0.2:29500", "127.0.0.2:29501"]},
      "task": {"type": "worker", "index": 3}})"));
  for (const char* name :
       {"LOCKSTEP_HOSTFILE", "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"}) {
    EXPECT_EQ(value_of(env, name), "/work/hostfile") << name;
  }
  for (const char* name : {"HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"}) {
    EXPECT_EQ(value_of(env, name), "/work/hostfile.hydra") << name;
  }
}

TEST(Launch, BracketsAddressesOfIpv6WhereAPortFollows) {
  Assignment assignment = command_assignment({"jax", "tensorflow"});
  for (WorldMember& node : assignment.world.members) node.host = "fd00::1";
  const std::vector<std::string> env = make_launch(assignment, 0, a_context()).env;
  EXPECT_EQ(value_of(env, "MASTER_ADDR"), "fd00::1");
  EXPECT_EQ(value_of(env, "JAX_COORDINATOR_ADDRESS"), "[fd00::1]:29500");
  EXPECT_NE(value_of(env, "TF_CONFIG").find("\"[fd00::1]:29501\""), std::string::npos);
}

TEST(Launch, WritesTheWorldAndTheHostfilesOfARound) {
  const std::vector<RoundFile> files = round_files(command_assignment({"mpi"}), "/work");
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].path, "/work/world.json");
  const Json world = *parse_json(files[0].text);
  EXPECT_EQ(world.at("nodes").at(1).at("host"), "127.0.0.2");
  EXPECT_EQ(world.at("processesPerNode"), 2);
  EXPECT_EQ(files[1].path, "/work/hostfile");
  EXPECT_EQ(files[1].text, "127.0.0.1 slots=2\n127.0.0.2 slots=2\n");
  EXPECT_EQ(files[2].path, "/work/hostfile.hydra");
  EXPECT_EQ(files[2].text, "127.0.0.1:2\n127.0.0.2:2\n");
  EXPECT_EQ(round_files(command_assignment(), "/work").size(), 1u);
  EXPECT_TRUE(round_files(make_assignment({}), "/work").empty());
}

using Environment = std::map<std::string, std::string>;
const Environment kPodEnvironment = {{"POD_IP", "10.0.0.7"},
                                     {"LOCKSTEP_JOB_UID", "uid"},
                                     {"LOCKSTEP_JOB_NAME", "job"},
                                     {"LOCKSTEP_NODE_INDEX", "3"},
                                     {"LOCKSTEP_INCARNATION", "2"}};

TEST(AgentOptions, ComeFromThePodsEnvironment) {
  const auto options = read_agent_options({}, kPodEnvironment, "/opt/bin/lockstep-agent");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->address, "10.0.0.7");
  EXPECT_EQ(options->port, kAgentPort);
  EXPECT_EQ(options->node_index, 3);
  EXPECT_EQ(options->incarnation, 2);
  EXPECT_EQ(options->worker_binary, "/opt/bin/lockstep-worker");
  EXPECT_EQ(options->token_file, "/var/run/lockstep/token/token");
  EXPECT_EQ(options->work_folder, "/var/lib/lockstep");
  EXPECT_EQ(options->termination_path, "/dev/termination-log");
  EXPECT_FALSE(options->create_termination);
  EXPECT_TRUE(options->keep_survivors);
  Environment environment = kPodEnvironment;
  environment["LOCKSTEP_SURVIVORS"] = "respawn";
  EXPECT_FALSE(read_agent_options({}, environment, "bin")->keep_survivors);
}

TEST(AgentOptions, LookForMountsBelowThePodsRoot) {
  Environment environment = kPodEnvironment;
  environment["LOCKSTEP_POD_ROOT"] = "/pods/a";
  const auto options = read_agent_options({"--listen", "[::1]:0"}, environment, "bin");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->token_file, "/pods/a/var/run/lockstep/token/token");
  EXPECT_EQ(options->work_folder, "/pods/a/var/lib/lockstep");
  EXPECT_EQ(options->termination_path, "/pods/a/dev/termination-log");
  EXPECT_TRUE(options->create_termination);
  EXPECT_EQ(options->address, "::1");
  EXPECT_EQ(options->port, 0);
}

TEST(AgentOptions, NameWhatIsMissingOrWrong) {
  for (const auto& [name, value] : kPodEnvironment) {
    Environment environment = kPodEnvironment;
    environment.erase(name);
    const auto options = read_agent_options({}, environment, "bin");
    ASSERT_FALSE(options.ok()) << name;
    EXPECT_TRUE(options.error().message.starts_with(name)) << options.error().message;
  }
  Environment environment = kPodEnvironment;
  environment["LOCKSTEP_NODE_INDEX"] = "two";
  EXPECT_FALSE(read_agent_options({}, environment, "bin").ok());
  environment = kPodEnvironment;
  environment["LOCKSTEP_SURVIVORS"] = "leave";
  EXPECT_EQ(read_agent_options({}, environment, "bin").error().message,
            "LOCKSTEP_SURVIVORS: expected \"stay\" or \"respawn\", found \"leave\"");
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--listen"},
                                                    {"--listen", "here"},
                                                    {"--listen", "a:70000"},
                                                    {"--unknown"}}) {
    const auto options = read_agent_options(arguments, kPodEnvironment, "bin");
    ASSERT_FALSE(options.ok());
    EXPECT_TRUE(options.error().message.starts_with(arguments[0])) << options.error().message;
  }
}

TEST(Cgroup, ReadsBothVersionsInsideAndOutsideOfAContainer) {
  const Folder folder;
  put(folder / "inside/memory.events", "low 0\noom 9\noom_kill 4\n");
  put(folder / "inside/cpu.max", "150000 100000\n");
  const Cgroup inside(folder / "inside", "0::/\n");
  EXPECT_EQ(inside.oom_kills(), 4);
  EXPECT_EQ(inside.cpu_quota(), 2) << "1.5, rounded up";

  put(folder / "outside/my/group/memory.events", "oom_kill 1\n");
  put(folder / "outside/my/group/cpu.max", "max 100000\n");
  const Cgroup outside(folder / "outside", "0::/my/group\n");
  EXPECT_EQ(outside.oom_kills(), 1);
  EXPECT_EQ(outside.cpu_quota(), 0);

  put(folder / "v1/memory/pod/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  put(folder / "v1/cpu/pod/cpu.cfs_quota_us", "300000\n");
  put(folder / "v1/cpu/pod/cpu.cfs_period_us", "100000\n");
  const Cgroup first(folder / "v1", "4:memory:/pod\n2:cpu,cpuacct:/pod\n0::/\n");
  EXPECT_EQ(first.oom_kills(), 2);
  EXPECT_EQ(first.cpu_quota(), 3);

  const Cgroup nothing(folder / "nothing", "");
  EXPECT_EQ(nothing.oom_kills(), -1);
  EXPECT_EQ(nothing.cpu_quota(), 0);
  EXPECT_GE(usable_cpus(nothing), 1);
  EXPECT_GE(usable_cpus(Cgroup::of_self()), 1);
}

TEST(Files, AreReadWithoutTheirLastBlanksAndWithinBounds) {
  const Folder folder;
  put(folder / "token", "secret\n");
  EXPECT_EQ(*read_small_file(folder / "token"), "secret");
  EXPECT_EQ(read_small_file(folder / "none").error().code, Code::kNotFound);
  put(folder / "large", std::string(5000, 'x'));
  EXPECT_EQ(read_small_file(folder / "large").error().code, Code::kInvalid);
}

TEST(Files, AreOverwrittenInPlaceAndOnlyMadeIfTold) {
  const Folder folder;
  EXPECT_EQ(overwrite_file(folder / "log", "text", false).error().code, Code::kNotFound);
  ASSERT_TRUE(overwrite_file(folder / "log", "long text", true).ok());
  ASSERT_TRUE(overwrite_file(folder / "log", "text", false).ok());
  EXPECT_EQ(text_of(folder / "log"), "text");
  ASSERT_TRUE(write_file_atomically(folder / "log", "new").ok());
  EXPECT_EQ(text_of(folder / "log"), "new");
  EXPECT_EQ(std::filesystem::status(folder / "log").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace
}  // namespace lockstep::node
