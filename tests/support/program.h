#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep::test {

// A program of this machine as a child process: its own process group, stdin empty, stdout and
// stderr in files of a temporary folder.
class Program {
 public:
  struct Options {
    std::vector<std::string> arguments;  // from argv[0] on; looked up along PATH
    // Over this process's own; an empty value takes a variable away.
    std::map<std::string, std::string> environment{};
    std::filesystem::path folder{};  // to start in; empty: this process's
    std::filesystem::path errors{};  // where its stderr goes; empty: the temporary folder
  };
  explicit Program(const Options& options);
  ~Program();  // kills it, with its group
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  void signal(int number);
  // Waits for its end; the exit code, 128 + signal where one ended it, -1 where it had to be killed
  // after `limit_seconds`.
  int wait(double limit_seconds = 300);
  // As they are so far.
  std::string output() const;
  std::string errors() const;

 private:
  bool reap(bool block);

  std::filesystem::path files_;
  std::filesystem::path errors_;
  pid_t pid_ = -1;
  int exit_code_ = -1;
  bool ended_ = false;
};

struct Outcome {
  int code = -1;
  std::string output;
  std::string errors;
};
// Runs it to its end.
Outcome run_program(const Program::Options& options, double limit_seconds = 300);

}  // namespace lockstep::test
