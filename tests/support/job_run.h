#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "tests/support/program.h"

namespace lockstep::test {

// A temporary folder; the destructor removes it with its contents.
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
    std::filesystem::path log;     // its stderr
  };
  explicit JobRun(const Options& options);

  // Same as Program's.
  pid_t pid() const { return program_.pid(); }
  bool running() { return program_.running(); }
  void signal(int number) { program_.signal(number); }
  int wait(double limit_seconds = 300) { return program_.wait(limit_seconds); }
  const std::filesystem::path& output() const { return output_; }
  // Return its stdout so far, and the single line of stdout as JSON (null if it is not that).
  std::string standard_output() const;
  Json result() const;

 private:
  Program program_;
  std::filesystem::path output_;
};

}  // namespace lockstep::test
