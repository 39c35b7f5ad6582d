#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep::test {

// A program of this machine as a child process, in its own process group, with empty stdin. stdout
// and stderr go to files in a temporary folder.
class Program {
 public:
  struct Options {
    std::vector<std::string> arguments;  // starting with argv[0]; found through PATH
    // Added to this process's environment; an empty value removes a variable.
    std::map<std::string, std::string> environment{};
    std::filesystem::path folder{};  // working folder; empty: this process's
    std::filesystem::path errors{};  // stderr file; empty: in the temporary folder
  };
  explicit Program(const Options& options);
  ~Program();  // kills its process group
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  void signal(int number);
  // Waits for the end of the program. Returns its exit code, 128 + signal if a signal ended it, or
  // -1 if it had to be killed after `limit_seconds`.
  int wait(double limit_seconds = 300);
  // The output so far.
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
// Runs it until it ends.
Outcome run_program(const Program::Options& options, double limit_seconds = 300);

}  // namespace lockstep::test
