#include "cli/run/worker_check.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>

#include "common/api/worker_config.h"
#include "common/base/json.h"

namespace lockstep::cli {
namespace {

// A file without a name, in memory.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }

  bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(fd_, text.data(), text.size());
      if (written < 0 && errno != EINTR) return false;
      if (written > 0) text.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }

  std::string read() const {
    std::string text;
    char block[4096];
    for (ssize_t bytes; (bytes = pread(fd_, block, sizeof block, std::ssize(text))) > 0;) {
      text.append(block, static_cast<size_t>(bytes));
    }
    return text;
  }

 private:
  int fd_;
};

// Runs `program check /dev/stdin`; returns its wait status.
Result<int> run_check(const std::string& program, const MemoryFile& input,
                      const MemoryFile& output) {
  std::string words[] = {program, "check", "/dev/stdin"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  posix_spawn_file_actions_t streams;
  posix_spawn_file_actions_init(&streams);
  posix_spawn_file_actions_adddup2(&streams, input.fd(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&streams, output.fd(), STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &streams, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&streams);
  if (error != 0) return unavailable(program + ": " + std::strerror(error));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return unavailable("waiting for " + program + ": " + std::strerror(errno));
  }
  return status;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Error no_memory() {
  return unavailable(std::string("memory for the job: ") + std::strerror(errno));
}

}  // namespace

Result<WorkerCheck> check_with_worker(const std::string& program_folder, const TrainingJob& job) {
  MemoryFile input("job"), output("answer");
  if (input.fd() < 0 || output.fd() < 0 || !input.write(dump_json(to_json(job)))) {
    return no_memory();
  }
  const std::string program = program_folder + "/lockstep-worker";
  TRY_ASSIGN(const int status, run_check(program, input, output));
  std::vector<std::string> lines = lines_of(output.read());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return WorkerCheck{.problems = {}, .notes = std::move(lines)};
  }
  const bool is_answer = WIFEXITED(status) && WEXITSTATUS(status) == kExitBadConfig;
  if (is_answer && !lines.empty()) return WorkerCheck{.problems = std::move(lines), .notes = {}};
  return unavailable(program + " check ended with " +
                     (WIFEXITED(status) ? "exit code " + std::to_string(WEXITSTATUS(status))
                                        : "signal " + std::to_string(WTERMSIG(status))));
}

Status put_on_stdin(const TrainingJob& job) {
  MemoryFile input("job");
  const bool is_written = input.fd() >= 0 && input.write(dump_json(to_json(job)));
  if (!is_written || dup2(input.fd(), STDIN_FILENO) < 0) return no_memory();
  return {};
}

}  // namespace lockstep::cli
