// `lockstep up` as a program: what it guarantees to a command and to a shell, and what it leaves
// behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/support/job_run.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> up(std::vector<std::string> rest) {
  rest.insert(rest.begin(), {std::string(LOCKSTEP_BIN_DIR) + "/lockstep", "up"});
  return rest;
}

class UpTest : public testing::Test {
 protected:
  const fs::path& folder() const { return folder_.path(); }
  std::string text(const char* name) const { return (folder() / name).string(); }

  TemporaryFolder folder_;
};

TEST_F(UpTest, RunsACommandWithAPrivateKubeconfigAndEndsWithItsExitCode) {
  const Outcome outcome = run_program(
      {.arguments = up({"--", "sh", "-c", "stat -c %a $KUBECONFIG; echo $KUBECONFIG; exit 7"})});
  EXPECT_EQ(outcome.code, 7) << outcome.errors;
  ASSERT_TRUE(outcome.output.starts_with("600\n")) << outcome.output;
  const fs::path kubeconfig = outcome.output.substr(4, outcome.output.size() - 5);
  EXPECT_FALSE(fs::exists(kubeconfig)) << "it would lead nowhere";
  EXPECT_FALSE(fs::exists(kubeconfig.parent_path())) << "a temporary folder";
}

TEST_F(UpTest, SaysThatACommandIsNotThere) {
  const Outcome outcome = run_program({.arguments = up({"--", "/no/such/program"})});
  EXPECT_EQ(outcome.code, 127);
  EXPECT_NE(outcome.errors.find("/no/such/program"), std::string::npos) << outcome.errors;
}

TEST_F(UpTest, TellsTheCommandToEndWhenItIsToldItself) {
  Program program({.arguments = up({"--", "sh", "-c",
                                    "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done"})});
  ASSERT_TRUE(eventually([&] { return program.output() == "up\n"; })) << program.errors();
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 3) << program.errors();
}

TEST_F(UpTest, StaysUntilItIsInterruptedAndLeavesNothing) {
  Program program({.arguments = up({"--folder", text("up")})});
  ASSERT_TRUE(eventually([&] { return fs::exists(folder() / "up/kubeconfig"); }))
      << program.errors();
  ASSERT_TRUE(eventually([&] { return !descendants(program.pid()).empty(); })) << "no controller";
  const std::vector<pid_t> children = descendants(program.pid());
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 0) << program.errors();
  for (pid_t child : children) EXPECT_FALSE(alive(child)) << child;
  EXPECT_FALSE(fs::exists(folder() / "up/kubeconfig"));
  EXPECT_FALSE(fs::exists(folder() / "up/node")) << "tokens and keys";
}

TEST_F(UpTest, LeavesNoProcessWhenItIsKilled) {
  Program program({.arguments = up({"--folder", text("up")})});
  ASSERT_TRUE(eventually([&] { return !descendants(program.pid()).empty(); })) << program.errors();
  const std::vector<pid_t> children = descendants(program.pid());
  program.signal(SIGKILL);
  program.wait();
  for (pid_t child : children)
    EXPECT_TRUE(eventually([&] { return !alive(child); })) << child << " outlives it";
}

TEST_F(UpTest, RefusesAFolderInWhichAnotherOneRuns) {
  Program first({.arguments = up({"--folder", text("up")})});
  ASSERT_TRUE(eventually([&] { return fs::exists(folder() / "up/kubeconfig"); })) << first.errors();
  const Outcome second = run_program({.arguments = up({"--folder", text("up"), "--", "true"})});
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.errors.find("running in " + text("up")), std::string::npos) << second.errors;
  EXPECT_TRUE(first.running());
  EXPECT_TRUE(fs::exists(folder() / "up/kubeconfig")) << "the first one's";
}

TEST_F(UpTest, LeavesAKubeconfigOfTheUsersAlone) {
  write_file(folder() / "mine", "precious");
  const Outcome outcome = run_program(
      {.arguments = up({"--folder", text("up"), "--kubeconfig", text("mine"), "--", "true"})});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.errors.find("already exists"), std::string::npos) << outcome.errors;
  EXPECT_EQ(read_file(folder() / "mine"), "precious");
}

}  // namespace
}  // namespace lockstep::test
