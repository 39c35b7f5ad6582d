#pragma once

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace lockstep::test {

// Returns whether a process that calls `forbid` and may dump otherwise leaves a core dump when it
// crashes. With nullptr: whether this machine writes dumps at all, without which no test can see
// that one is forbidden. For programs with one thread.
inline bool dumps_core_after(void (*forbid)()) {
  std::string folder = (std::filesystem::temp_directory_path() / "core-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return false;
  const pid_t pid = ::fork();
  if (pid == 0) {
    rlimit limit{};
    ::getrlimit(RLIMIT_CORE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_CORE, &limit);
    if (::chdir(folder.c_str()) != 0) ::_exit(1);
    if (forbid != nullptr) forbid();
    ::signal(SIGABRT, SIG_DFL);
    ::abort();
  }
  int status = 0;
  const bool has_ended = ::waitpid(pid, &status, 0) == pid;
  std::filesystem::remove_all(folder);
  return has_ended && WIFSIGNALED(status) && WCOREDUMP(status);
}

}  // namespace lockstep::test
