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
#include "agent/node/launch.h"
#include "agent/node/options.h"
#include "agent/node/utf8.h"
#include "agent/node/worker_log.h"
#include "tests/agent/node/assignments.h"

namespace lockstep {
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

TEST(Utf8, ReplacesEveryByteThatIsNoCharacter) {
  const std::pair<const char*, const char*> cases[] = {
      {"plain", "plain"},
      {"\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x99\x82", "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x99\x82"},
      {"a\xFFz", "a\xEF\xBF\xBDz"},
      {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},                                  // overlong
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // surrogate
      {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},  // too high
      {"\xE2\x82", "\xEF\xBF\xBD\xEF\xBF\xBD"},                                  // cut off
  };
  for (const auto& [text, clean] : cases) EXPECT_EQ(clean_utf8(text), clean);
}

TEST(Utf8, CutsBetweenCharacters) {
  const std::string text = "a\xE2\x82\xAC";  // a, euro
  EXPECT_EQ(utf8_cut(text, 2), 1u);
  EXPECT_EQ(utf8_cut(text, 3), 1u);
  EXPECT_EQ(utf8_cut(text, 4), 4u);
  EXPECT_EQ(utf8_tail(text + "z", 3), "z");
  EXPECT_EQ(utf8_tail(text + "z", 4), "\xE2\x82\xACz");
  EXPECT_EQ(utf8_cut("\x80\x80\x80\x80\x80\x80", 5), 5u) << "garbage ends as well";
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
  OutputQueue queue(pipe_fds[1], 128 * 1024);
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
  EXPECT_NE(seen.find("[agent] " + std::to_string(1000 - lines) + " lines left out"),
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

LaunchContext a_context() {
  return {.worker_binary = "/opt/bin/lockstep-worker",
          .work_folder = "/work",
          .token_file = "/token",
          .cpus = 5,
          .env = {"PATH=/bin", "RANK=99", "LOCKSTEP_NODE_INDEX=0"}};
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
  const auto read = worker_config_from_json(to_json(launch.config));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->threads, 2) << "5 CPUs for 2 processes";
  EXPECT_EQ(read->token_file, "/token");
  assignment.threads_per_process = 7;
  EXPECT_EQ(make_launch(assignment, 1, a_context()).config.threads, 7);
}

TEST(Launch, RunsTheUsersCommandWithoutAConfig) {
  Assignment assignment = make_assignment({});
  assignment.train.reset();
  assignment.command = {"python3", "train.py"};
  const Launch launch = make_launch(assignment, 0, a_context());
  EXPECT_EQ(launch.argv, assignment.command);
  EXPECT_EQ(launch.config_path, "");
  EXPECT_TRUE(has(launch.env, "MASTER_PORT=29500"));
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
}  // namespace lockstep
