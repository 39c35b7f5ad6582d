#include "local/node/process_host.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <future>

namespace lockstep::local {
namespace {

constexpr auto kOrphanCheck = std::chrono::milliseconds(500);

// Everything the child needs, prepared before the fork: after it, a process with threads may only
// make async-signal-safe calls.
struct ChildImage {
  std::vector<char*> argv;
  std::vector<char*> envp;
  const char* program;
  const char* folder;
  int output;  // -1: in the foreground
  int error_pipe;
  pid_t parent;
  cpu_set_t cpus;
  bool bound;
};

bool redirect_streams(const ChildImage& image) {
  if (image.output < 0) return true;
  int null = open("/dev/null", O_RDONLY);
  return null >= 0 && dup2(null, 0) >= 0 && dup2(image.output, 1) >= 0 &&
         dup2(image.output, 2) >= 0;
}

[[noreturn]] void exec_child(const ChildImage& image) {
  const bool foreground = image.output < 0;
  if (!foreground) setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != image.parent) _exit(126);  // the parent died before prctl()
  // If none of these CPUs exists any more, the child keeps the inherited ones.
  if (image.bound) sched_setaffinity(0, sizeof image.cpus, &image.cpus);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (redirect_streams(image) && chdir(image.folder) == 0)
    execve(image.program, image.argv.data(), image.envp.data());
  int error = errno;
  // If the parent can't read the error, the exit code reports it.
  (void)!write(image.error_pipe, &error, sizeof error);
  _exit(127);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  list.reserve(texts.size() + 1);
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

cpu_set_t cpu_set(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &set);
  return set;
}

ExitStatus to_exit_status(int raw) {
  if (WIFSIGNALED(raw)) return {128 + WTERMSIG(raw), WTERMSIG(raw)};
  return {WEXITSTATUS(raw), 0};
}

}  // namespace

ProcessHost::ProcessHost() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  spawner_ = std::thread([this] { spawn_loop(); });
  reaper_ = std::thread([this] { reap_loop(); });
}

ProcessHost::~ProcessHost() {
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    for (const auto& [pid, on_exit] : children_) {
      kill(pid, SIGKILL);  // a foreground child leads no group
      kill(-pid, SIGKILL);
    }
    changed_.wait(lock, [this] { return children_.empty(); });
    stopping_ = true;
    ++spawned_;
  }
  changed_.notify_all();
  reaper_.join();
  spawner_.join();
}

Result<pid_t> ProcessHost::spawn(const SpawnSpec& spec, OnExit on_exit) {
  std::promise<Result<pid_t>> promise;
  std::future<Result<pid_t>> started = promise.get_future();
  spawn_later(
      spec, [&promise](Result<pid_t> pid) { promise.set_value(std::move(pid)); },
      std::move(on_exit));
  return started.get();
}

void ProcessHost::spawn_later(SpawnSpec spec, OnStart on_start, OnExit on_exit) {
  {
    std::lock_guard lock(mutex_);
    requests_.push_back({std::move(spec), std::move(on_exit), std::move(on_start)});
  }
  changed_.notify_all();
}

void ProcessHost::spawn_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !requests_.empty(); });
    if (requests_.empty()) return;
    Request request = std::move(requests_.front());
    requests_.pop_front();
    // Under the lock, so that the reaper finds the child in the table even if it ends immediately.
    Result<pid_t> pid = closing_
                            ? unavailable("[spawn] " + request.spec.program + ": shutting down")
                            : fork_and_exec(request.spec, std::move(request.on_exit));
    ++spawned_;
    changed_.notify_all();
    lock.unlock();
    request.on_start(std::move(pid));
    lock.lock();
  }
}

Result<pid_t> ProcessHost::fork_and_exec(const SpawnSpec& spec, OnExit on_exit) {
  int output = -1;
  if (!spec.output_file.empty()) {
    output = open(spec.output_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (output < 0) return errno_error("[spawn] " + spec.output_file, errno);
  }
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    if (output >= 0) close(output);
    return errno_error("[spawn] pipe", errno);
  }
  ChildImage image{pointers(spec.arguments),
                   pointers(spec.environment),
                   spec.program.c_str(),
                   spec.working_folder.c_str(),
                   output,
                   fds[1],
                   getpid(),
                   cpu_set(spec.cpus),
                   !spec.cpus.empty()};
  pid_t pid = fork();
  if (pid == 0) exec_child(image);
  int fork_errno = errno;
  if (output >= 0) close(output);
  close(fds[1]);
  int exec_errno = 0;
  ssize_t bytes = pid > 0 ? read(fds[0], &exec_errno, sizeof exec_errno) : 0;
  close(fds[0]);
  if (pid < 0) return errno_error("[spawn] fork", fork_errno);
  if (bytes > 0) return errno_error("[spawn] " + spec.program, exec_errno);
  children_[pid] = std::move(on_exit);
  return pid;
}

void ProcessHost::reap_loop() {
  uint64_t seen = 0;
  while (true) {
    int raw = 0;
    pid_t pid = waitpid(-1, &raw, 0);
    if (pid < 0 && errno == EINTR) continue;
    std::unique_lock lock(mutex_);
    if (pid < 0) {  // no children: sleep until one starts, or an orphan may have been adopted
      if (stopping_) return;
      changed_.wait_for(lock, kOrphanCheck, [&] { return stopping_ || spawned_ != seen; });
      seen = spawned_;
      continue;
    }
    auto found = children_.find(pid);
    if (found == children_.end()) continue;  // an adopted orphan, or a child that failed to start
    OnExit on_exit = std::move(found->second);
    lock.unlock();
    on_exit(to_exit_status(raw));
    lock.lock();
    children_.erase(pid);
    changed_.notify_all();
  }
}

}  // namespace lockstep::local
