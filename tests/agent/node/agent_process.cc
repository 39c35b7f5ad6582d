#include "tests/agent/node/agent_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/json.h"

namespace lockstep::node {
namespace {

// Guards against hangs; much longer than any test needs.
constexpr std::chrono::seconds kLimit(60);
constexpr std::chrono::milliseconds kInterval(5);

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

[[noreturn]] void run_agent(const AgentProcessOptions& options, const std::string& folder,
                            int stdout_fd) {
  setenv("LOCKSTEP_JOB_UID", options.job_uid.c_str(), 1);
  setenv("LOCKSTEP_JOB_NAME", "job", 1);
  setenv("LOCKSTEP_NODE_INDEX", "0", 1);
  setenv("LOCKSTEP_INCARNATION", "1", 1);
  setenv("LOCKSTEP_POD_ROOT", folder.c_str(), 1);
  for (const std::string& entry : options.more_env) putenv(strdup(entry.c_str()));
  const int error_fd = open((folder + "/stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(error_fd, STDERR_FILENO);
  dup2(stdout_fd, STDOUT_FILENO);
  const std::string binary = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-agent";
  const std::string worker = options.worker_binary.empty()
                                 ? std::string(LOCKSTEP_BIN_DIR) + "/tests/node_fake_worker"
                                 : options.worker_binary;
  const std::string hold = std::to_string(options.hold_seconds);
  const std::string token =
      options.token_file.empty() ? folder + "/var/run/lockstep/token/token" : options.token_file;
  execl(binary.c_str(), binary.c_str(), "--listen", options.listen.c_str(), "--worker-binary",
        worker.c_str(), "--hold-seconds", hold.c_str(), "--token-file", token.c_str(), nullptr);
  _exit(126);
}

bool is_alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');
  return end != std::string::npos && text.size() > end + 2 && text[end + 2] != 'Z';
}

int port_in(const std::string& log) {
  const size_t at = log.find(" port=");
  return at == std::string::npos || log.find('\n', at) == std::string::npos
             ? 0
             : std::atoi(log.c_str() + at + 6);
}

}  // namespace

void wait_until(const std::function<bool()>& is_true, const std::string& what) {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (!is_true()) {
    if (std::chrono::steady_clock::now() > end) {
      FAIL() << "waited in vain for: " << what;
    }
    std::this_thread::sleep_for(kInterval);
  }
}

std::vector<pid_t> processes_of(const std::string& job_uid) {
  const std::string wanted = "LOCKSTEP_JOB_UID=" + job_uid + '\0';
  std::vector<pid_t> result;
  DIR* proc = opendir("/proc");
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0 || pid == getpid()) continue;
    const std::string environment = text_of("/proc/" + std::to_string(pid) + "/environ") + '\0';
    if (environment.find(wanted) != std::string::npos && is_alive(pid)) result.push_back(pid);
  }
  closedir(proc);
  return result;
}

AgentProcess::AgentProcess(AgentProcessOptions options) : options_(std::move(options)) {
  std::string name = testing::TempDir() + "lockstep-agent-XXXXXX";
  folder_ = mkdtemp(name.data());
  std::filesystem::create_directories(folder_ + "/var/run/lockstep/token");
  std::ofstream(folder_ + "/var/run/lockstep/token/token") << "secret\n";
  CHECK(pipe2(stdout_fds_, O_CLOEXEC) == 0);
  int out = stdout_fds_[1];
  if (options_.read_stdout) {
    out = open((folder_ + "/stdout").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }
  pid_ = fork();
  if (pid_ == 0) run_agent(options_, folder_, out);
  close(out);
  const auto ready = [&] {
    port_ = port_in(stderr_text());
    return port_ != 0 || !is_alive(pid_);
  };
  wait_until(ready, "the agent listens");
}

AgentProcess::~AgentProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const pid_t pid : processes_of(options_.job_uid)) kill(pid, SIGKILL);
  close(stdout_fds_[0]);
  if (options_.read_stdout) close(stdout_fds_[1]);
  std::filesystem::remove_all(folder_);
}

std::string AgentProcess::stderr_text() const {
  return text_of(folder_ + "/stderr");
}
std::string AgentProcess::stdout_text() const {
  return text_of(folder_ + "/stdout");
}
std::string AgentProcess::log_text(int rank) const {
  return text_of(folder_ + "/var/lib/lockstep/logs/rank-" + std::to_string(rank) + ".log");
}
std::string AgentProcess::termination_text() const {
  return text_of(folder_ + "/dev/termination-log");
}

test::HttpReply AgentProcess::put(const Assignment& assignment) const {
  return test::http_call(port_, {.method = "PUT",
                                 .target = "/v1/assignment",
                                 .token = "secret",
                                 .body = dump_json(to_json(assignment))});
}

test::HttpReply AgentProcess::get(const std::string& target) const {
  return test::http_call(port_, {.target = target, .token = "secret"});
}

AgentState AgentProcess::wait_for(const std::function<bool(const AgentState&)>& wanted) const {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  AgentState state;
  do {
    const test::HttpReply reply =
        get("/v1/state?timeoutSeconds=5&since=" + std::to_string(state.sequence) +
            "&protocol=" + std::to_string(kProtocolNewest));
    const auto document = parse_json(reply.body);
    if (!document.ok()) continue;
    const auto read = agent_state_from_json(*document);
    EXPECT_TRUE(read.ok()) << reply.body;
    if (read.ok()) state = *read;
    if (wanted(state)) return state;
  } while (std::chrono::steady_clock::now() < end);
  ADD_FAILURE() << "waited in vain; the last state was " << dump_json(to_json(state));
  return state;
}

AgentState AgentProcess::wait_for_phase(const std::string& phase) const {
  return wait_for([&](const AgentState& state) { return state.phase == phase; });
}

void AgentProcess::signal(int number) const {
  kill(pid_, number);
}

int AgentProcess::wait_for_exit() {
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace lockstep::node
