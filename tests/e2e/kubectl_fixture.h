#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/job_run.h"
#include "tests/support/program.h"

// Scripted sessions of the ordinary kubectl against one `lockstep up`, once for each kubectl.
namespace lockstep::test {

// The programs that the environment variable LOCKSTEP_KUBECTLS names, with a colon
// between them, one of each version; one empty string where it names none, so that the tests are
// skipped and seen to be.
std::vector<std::string> kubectls();
// "v1_33", from the program's own words, as a test's name has it; "none" for the empty string.
std::string version_of(const std::string& kubectl);

// A table as kubectl prints it.
class PrintedTable {
 public:
  explicit PrintedTable(const std::string& text);

  const std::vector<std::string>& headers() const { return headers_; }
  size_t rows() const { return rows_.size(); }
  // The cell below `header` in the first line whose first cell is `name`; "no such cell" where
  // there is none.
  std::string cell(const std::string& name, const std::string& header) const;
  // All cells below `header`.
  std::vector<std::string> column(const std::string& header) const;

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

struct JobSpec {
  std::string name = "tiny";
  int nodes = 1;
  int steps = 20;
  std::string labels = "";  // "{tier: front}"
  std::string more = "";    // further lines of spec, indented by two
};

// One cluster for all tests, and a namespace in it for each test of each kubectl, which its
// commands are in.
class KubectlTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;

  // `command` as one would type it after `kubectl`: words with spaces between them; single
  // quotes keep spaces. `lockstep ...` is the plugin.
  Outcome kubectl(const std::string& command);
  // Its stdout; the test fails if it does not end with 0.
  std::string ok(const std::string& command);
  // Its stderr; the test fails if it ends with 0.
  std::string refused(const std::string& command);
  // The same in the background.
  std::unique_ptr<Program> start(const std::string& command);
  // Repeats it until its stdout has `words`.
  bool eventually_prints(const std::string& command, const std::string& words);
  // Repeats `get` until it is not found. (Old ones can't wait for what is gone already.)
  bool eventually_gone(const std::string& kind_and_name);

  Json object(const std::string& kind_and_name);  // get -o json
  PrintedTable table(const std::string& command);

  // The path of a file of the test, written.
  std::string file(const std::string& name, const std::string& text);
  // What `kubectl edit` runs: a line of shell, whose $1 is the file.
  void editor(const std::string& line);
  // The YAML of a small TrainingJob, in a file.
  std::string job_file(const JobSpec& job = {});
  // That of a job of any program, which waits until the file `mark` has text.
  std::string waiting_job_file(const std::string& name, int nodes);
  // 1.33 is 33; for what older ones don't know.
  int minor_version() const;
  const std::string& namespace_name() const { return namespace_; }

 private:
  struct Cluster;
  static Cluster& cluster();
  Program::Options options_for(const std::string& command) const;

  TemporaryFolder folder_;
  std::string namespace_;
};

// Whether `text` has `words`; says both if not.
testing::AssertionResult has(const std::string& text, const std::string& words);

}  // namespace lockstep::test
