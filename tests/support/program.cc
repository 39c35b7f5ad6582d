#include "tests/support/program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "tests/support/job_run.h"

namespace lockstep::test {
namespace {

void redirect(const char* file, int flags, int to) {
  const int fd = ::open(file, flags, 0600);
  if (fd < 0 || ::dup2(fd, to) < 0) ::_exit(126);
}

}  // namespace

Program::Program(const Options& options) {
  std::string pattern = std::filesystem::temp_directory_path() / "lockstep-program-XXXXXX";
  CHECK(::mkdtemp(pattern.data()) != nullptr);
  files_ = pattern;
  const std::string output = files_ / "stdout";
  errors_ = options.errors.empty() ? files_ / "stderr" : options.errors;
  std::vector<char*> argv;
  for (const std::string& argument : options.arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  CHECK(pid_ >= 0);
  if (pid_ != 0) return;
  ::setpgid(0, 0);
  redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  redirect(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  redirect(errors_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  for (const auto& [name, value] : options.environment) {
    if (value.empty()) {
      ::unsetenv(name.c_str());
    } else {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(126);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

Program::~Program() {
  if (!ended_) {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    reap(true);
  }
  std::error_code ignored;
  std::filesystem::remove_all(files_, ignored);
}

bool Program::reap(bool block) {
  if (ended_) return true;
  int status = 0;
  if (::waitpid(pid_, &status, block ? 0 : WNOHANG) != pid_) return false;
  ended_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

bool Program::running() {
  return !reap(false);
}

void Program::signal(int number) {
  ::kill(pid_, number);
}

int Program::wait(double limit_seconds) {
  if (eventually([this] { return reap(false); }, limit_seconds)) return exit_code_;
  ::kill(-pid_, SIGKILL);
  reap(true);
  return -1;
}

std::string Program::output() const {
  return read_file(files_ / "stdout");
}

std::string Program::errors() const {
  return read_file(errors_);
}

Outcome run_program(const Program::Options& options, double limit_seconds) {
  Program program(options);
  const int code = program.wait(limit_seconds);
  return {code, program.output(), program.errors()};
}

}  // namespace lockstep::test
