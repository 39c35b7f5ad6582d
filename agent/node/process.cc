#include "agent/node/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <string_view>

#include "agent/node/proc_table.h"

namespace lockstep::node {
namespace {

sigset_t supervised_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Everything the child needs, prepared before fork: the child of a process with threads must not
// allocate.
struct ChildPlan {
  std::vector<std::string> programs;  // in the order to try
  std::vector<char*> argv;
  std::vector<char*> env;
  const SpawnOptions* options = nullptr;
  pid_t parent = 0;
  int error_fd = -1;
};

std::vector<std::string> candidates(const SpawnOptions& options) {
  const std::string& program = options.argv.front();
  if (program.find('/') != std::string::npos) return {program};
  std::string_view rest = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string_view variable : options.env) {
    if (variable.starts_with("PATH=")) rest = variable.substr(5);
  }
  std::vector<std::string> result;
  while (true) {
    const size_t end = rest.find(':');
    const std::string_view folder = rest.substr(0, end);
    if (!folder.empty()) result.push_back(std::string(folder) + "/" + program);
    if (end == std::string_view::npos) return result;
    rest.remove_prefix(end + 1);
  }
}

void close_all_at_exec() {
  if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
  const long limit = sysconf(_SC_OPEN_MAX);  // for kernels before Linux 5.11
  for (int fd = 3; fd < limit && fd < 65536; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void reset_signals() {
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal != SIGKILL && signal != SIGSTOP) std::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void run_child(const ChildPlan& plan) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // the parent died before prctl took effect
  reset_signals();
  const int null_fd = open("/dev/null", O_RDONLY);
  if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
  if (plan.options->output_fd >= 0) {
    dup2(plan.options->output_fd, STDOUT_FILENO);
    dup2(plan.options->output_fd, STDERR_FILENO);
  }
  close_all_at_exec();
  for (const int fd : plan.options->inherited_fds) fcntl(fd, F_SETFD, 0);
  int error = ENOENT;
  for (const std::string& program : plan.programs) {
    execve(program.c_str(), plan.argv.data(), plan.env.data());
    if (errno != ENOENT) error = errno;
  }
  [[maybe_unused]] const ssize_t written = write(plan.error_fd, &error, sizeof(error));
  _exit(127);
}

// Kills a process identified by pid and start time. The pidfd pins the process, so that its pid
// cannot be reused before the signal.
void kill_exactly(pid_t pid, uint64_t start_time) {
  const auto fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return;
  const auto stat = read_process(pid);
  if (stat && stat->start_time == start_time) {
    syscall(SYS_pidfd_send_signal, fd, SIGKILL, nullptr, 0);
  }
  close(fd);
}

bool is_meant(pid_t pid, const std::set<pid_t>& but, const std::map<pid_t, ProcessStat>& all) {
  const bool is_spared = std::ranges::any_of(
      but, [&](pid_t spared) { return pid == spared || is_below(pid, spared, all); });
  return !is_spared && is_below(pid, getpid(), all);
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

Result<int> become_init() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return errno_error("[supervisor] subreaper", errno);
  const sigset_t signals = supervised_signals();
  if (sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) {
    return errno_error("[supervisor] signal mask", errno);
  }
  std::signal(SIGPIPE, SIG_IGN);
  const int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return errno_error("[supervisor] signalfd", errno);
  return fd;
}

bool read_signals(int signal_fd) {
  bool terminated = false;
  signalfd_siginfo info = {};
  while (read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
    terminated |= info.ssi_signo != SIGCHLD;
  }
  return terminated;
}

Result<pid_t> spawn_process(const SpawnOptions& options) {
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) return errno_error("[spawn] pipe", errno);
  ChildPlan plan;
  plan.programs = candidates(options);
  plan.argv = pointers(options.argv);
  plan.env = pointers(options.env);
  plan.options = &options;
  plan.parent = getpid();
  plan.error_fd = error_pipe[1];
  const pid_t pid = fork();
  if (pid == 0) run_child(plan);
  const int fork_error = errno;
  close(error_pipe[1]);
  int error = 0;
  const bool failed = pid > 0 && read(error_pipe[0], &error, sizeof(error)) == sizeof(error);
  close(error_pipe[0]);
  if (pid < 0) return errno_error("[spawn] fork", fork_error);
  if (failed) {
    waitpid(pid, nullptr, 0);
    return errno_error("[spawn] " + options.argv.front(), error);
  }
  return pid;
}

std::vector<ProcessEnd> reap_children(const std::set<pid_t>& leaders) {
  std::vector<ProcessEnd> ends;
  while (true) {
    siginfo_t info = {};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return ends;
    // Until it is reaped, its pid cannot become another group's.
    if (leaders.contains(info.si_pid)) kill(-info.si_pid, SIGKILL);
    rusage usage = {};
    wait4(info.si_pid, nullptr, 0, &usage);
    ProcessEnd end;
    end.pid = info.si_pid;
    end.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    end.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    end.exit_code = end.signal != 0 ? 128 + end.signal : info.si_status;
    ends.push_back(end);
  }
}

bool has_children() {
  siginfo_t info = {};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

bool has_descendants(const std::set<pid_t>& but) {
  if (but.empty()) return has_children();
  const std::map<pid_t, ProcessStat> all = all_processes();
  return std::ranges::any_of(all,
                             [&](const auto& entry) { return is_meant(entry.first, but, all); });
}

void kill_descendants(const std::set<pid_t>& but) {
  const std::map<pid_t, ProcessStat> all = all_processes();
  for (const auto& [pid, stat] : all) {
    if (stat.state != 'Z' && is_meant(pid, but, all)) kill_exactly(pid, stat.start_time);
  }
}

}  // namespace lockstep::node
