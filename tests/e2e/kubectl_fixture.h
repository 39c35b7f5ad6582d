#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/job_run.h"
#include "tests/support/program.h"

// Scripted sessions of the real kubectl against one `lockstep up`, repeated for each kubectl.
namespace lockstep::test {

// Returns the programs in the environment variable LOCKSTEP_KUBECTLS, which are separated by
// colons, one of each version. If it names none: one empty string, so that the tests are reported
// as skipped.
std::vector<std::string> kubectls();
// Returns the version that the program reports, in a form for test names: "v1_33"; "none" for the
// empty string.
std::string version_of(const std::string& kubectl);

// A table as kubectl prints it.
class PrintedTable {
 public:
  explicit PrintedTable(const std::string& text);

  const std::vector<std::string>& headers() const { return headers_; }
  size_t rows() const { return rows_.size(); }
  // Returns the cell below `header` in the first line whose first cell is `name`, or "no such
  // cell".
  std::string cell(const std::string& name, const std::string& header) const;
  // Returns all cells below `header`.
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

// One cluster for all tests. Each test of each kubectl has its own namespace, in which its commands
// run.
class KubectlTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Runs `command` as typed after `kubectl`: words with spaces between them; single quotes keep
  // spaces. `lockstep ...` runs the plugin.
  Outcome kubectl(const std::string& command);
  // Returns the command's stdout; the test fails unless it exits with 0.
  std::string ok(const std::string& command);
  // Returns the command's stderr; the test fails if it exits with 0.
  std::string refused(const std::string& command);
  // Runs the command in the background.
  std::unique_ptr<Program> start(const std::string& command);
  // Repeats the command until its stdout contains `words`.
  bool eventually_prints(const std::string& command, const std::string& words);
  // Repeats `get` until the object is not found. (Old versions can't wait for an object that is
  // already gone.)
  bool eventually_gone(const std::string& kind_and_name);

  Json object(const std::string& kind_and_name);  // get -o json
  PrintedTable table(const std::string& command);

  // Writes a file of the test and returns its path.
  std::string file(const std::string& name, const std::string& text);
  // Makes `kubectl edit` run this shell line, whose $1 is the file.
  void editor(const std::string& line);
  // Writes the YAML of a small TrainingJob and returns its path.
  std::string job_file(const JobSpec& job = {});
  // The same for a job that runs a command, which waits until the file `mark` has text.
  std::string waiting_job_file(const std::string& name, int nodes);
  // Returns 33 for 1.33, for what older versions lack.
  int minor_version() const;
  const std::string& namespace_name() const { return namespace_; }

 private:
  struct Cluster;
  static Cluster& cluster();
  Program::Options options_for(const std::string& command) const;

  TemporaryFolder folder_;
  std::string namespace_;
};

// Whether `text` contains `words`; a failure shows both.
testing::AssertionResult has(const std::string& text, const std::string& words);

}  // namespace lockstep::test
