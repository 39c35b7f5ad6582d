#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/base/json.h"

namespace lockstep::test {

// A folder below the system's temporary one, removed with everything in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Text with structure that a small model learns quickly: sentences of a made-up grammar.
std::string generated_text(size_t bytes, uint64_t seed);

void write_file(const std::filesystem::path& path, const std::string& text);
std::string read_file(const std::filesystem::path& path);

// Polls `condition` until it holds; false after `limit_seconds`, a guard against hangs.
bool eventually(const std::function<bool()>& condition, double limit_seconds = 120);

// `lockstep run JOB -o json --output OUTPUT` as a child process.
class JobRun {
 public:
  struct Options {
    std::filesystem::path job;     // the YAML file
    std::filesystem::path output;  // the run's folder
    std::filesystem::path log;     // where its stderr goes
  };
  explicit JobRun(const Options& options);
  ~JobRun();  // kills what is left of it
  JobRun(const JobRun&) = delete;
  JobRun& operator=(const JobRun&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  void signal(int number);
  // Waits for its end; the exit code, 128 + signal where one ended it, -1 where it had to be killed
  // after `limit_seconds`.
  int wait(double limit_seconds = 300);
  // Its stdout as it is so far, and its only line as JSON (null if it isn't that).
  std::string standard_output() const;
  Json result() const;

 private:
  bool reap(bool block);

  Options options_;
  pid_t pid_ = -1;
  int exit_code_ = -1;
  bool ended_ = false;
};

}  // namespace lockstep::test
