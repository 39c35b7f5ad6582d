// Tests how pods of the local node end: signals, grace periods, and that no processes or files
// remain.
#include <signal.h>
#include <sys/wait.h>

#include "tests/local/node/node_fixture.h"

namespace lockstep::local {
namespace {

TEST_F(NodeTest, DeletionSendsSigtermAndWaits) {
  start_node();
  make(shell_pod("p", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(wait_for_log("p", "ready"));
  ask("DELETE", std::string(kPods) + "/p");
  ASSERT_TRUE(wait_gone("p"));
  EXPECT_NE(log_of("p").find("bye"), std::string::npos);
  EXPECT_TRUE(wait_until([&] { return node_->is_empty(); }));
}

TEST_F(NodeTest, ThenKillsAndAllDescendantsWithIt) {
  start_node();
  // One child in its own session, and one that nobody waits for. Neither is in the process group.
  make(shell_pod("p",
                 "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & "
                 "(setsid sleep 1000 &) ; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(wait_for_log("p", "ready"));
  ASSERT_TRUE(wait_until([&] { return processes_of("p").size() >= 4; }));
  std::vector<pid_t> before = processes_of("p");
  ask("DELETE", std::string(kPods) + "/p", {{"gracePeriodSeconds", 1}});
  ASSERT_TRUE(wait_gone("p"));
  for (pid_t pid : before) EXPECT_TRUE(wait_until([&] { return kill(pid, 0) != 0; }));
  EXPECT_TRUE(wait_until([&] { return node_->is_empty(); }));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/pods"));
}

TEST_F(NodeTest, ForcedDeletionKillsAtOnce) {
  start_node();
  make(shell_pod("p", "trap '' TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(wait_for_log("p", "ready"));
  std::vector<pid_t> before = processes_of("p");
  ASSERT_FALSE(before.empty());
  ask("DELETE", std::string(kPods) + "/p", {{"gracePeriodSeconds", 0}});
  EXPECT_EQ(get("p")["code"], 404);
  EXPECT_TRUE(wait_until([&] { return kill(before[0], 0) != 0; }));
}

TEST_F(NodeTest, AContainerEndsWithAllThatItStarted) {
  start_node();
  make(shell_pod("p", "setsid sleep 1000 & exit 3"));
  ASSERT_TRUE(wait_for_phase("p", "Failed"));
  EXPECT_TRUE(processes_of("p").empty());
}

TEST_F(NodeTest, NothingOutlivesTheNode) {
  start_node();
  make(shell_pod("p", "trap '' TERM; setsid sleep 1000 & echo ready; sleep 1000"));
  ASSERT_TRUE(wait_for_log("p", "ready"));
  std::vector<pid_t> before = processes_of("p");
  node_.reset();
  for (pid_t pid : before) EXPECT_TRUE(wait_until([&] { return kill(pid, 0) != 0; }));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/pods"));
}

TEST_F(NodeTest, ChildrenDieWithTheirProcess) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  pid_t owner = fork();
  if (owner == 0) {
    ProcessHost host;
    Result<pid_t> child = host.spawn({.program = "/bin/sleep",
                                      .arguments = {"sleep", "1000"},
                                      .working_folder = "/",
                                      .output_file = "/dev/null"},
                                     [](ExitStatus) {});
    pid_t pid = child.ok() ? *child : -1;
    if (write(fds[1], &pid, sizeof pid) < 0) _exit(1);
    pause();
  }
  pid_t child = -1;
  ASSERT_EQ(read(fds[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 0);
  EXPECT_EQ(kill(child, 0), 0);
  kill(owner, SIGKILL);
  EXPECT_TRUE(wait_until([&] { return kill(child, 0) != 0; }));
  close(fds[0]);
  close(fds[1]);
}

TEST(AddressPool, GivesEachPodItsOwnAddressWithFreePorts) {
  AddressPool pool(7);
  std::set<std::string> seen;
  for (int i = 0; i < 300; ++i) {
    Result<std::string> address = pool.take({29400});
    ASSERT_TRUE(address.ok());
    EXPECT_TRUE(seen.insert(*address).second) << *address;
  }
}

}  // namespace
}  // namespace lockstep::local
