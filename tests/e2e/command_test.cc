// Jobs that run a user's program, with `lockstep run` and the real programs.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "tests/support/job_run.h"
#include "tests/support/processes.h"
#include "tests/support/torch.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

class CommandTest : public testing::Test {
 protected:
  // Starts a job of 2 nodes x 2 processes that runs the script in the job's folder.
  void start(const std::string& script, const std::string& more = "",
             const std::string& rendezvous = "") {
    port_ = free_port();
    write_file(folder_.path() / "script.sh", script);
    write_file(
        folder_.path() / "job.yaml",
        "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: any}\nspec:\n"
        "  nodes: 2\n  processesPerNode: 2\n  rendezvous: {port: " +
            std::to_string(port_) + rendezvous + "}\n  command: [sh, script.sh]\n" + more);
    run_ = std::make_unique<JobRun>(JobRun::Options{.job = folder_.path() / "job.yaml",
                                                    .output = folder_.path() / "out",
                                                    .log = folder_.path() / "log"});
  }
  std::string log() const { return read_file(folder_.path() / "log"); }
  bool says(const std::string& words) const { return log().find(words) != std::string::npos; }

  TemporaryFolder folder_;
  std::unique_ptr<JobRun> run_;
  int port_ = 0;
};

TEST_F(CommandTest, ARankThatFailsIsNamedAndAllComeBackInANewRound) {
  start(
      "echo round $LOCKSTEP_ROUND restart $TORCHELASTIC_RESTART_COUNT port $MASTER_PORT\n"
      "[ $LOCKSTEP_RESTARTS = 1 ] && exit 0\n"
      "[ $RANK = 2 ] && echo the reason >&2 && exit 5\n"
      "sleep 1000\n");
  EXPECT_EQ(run_->wait(), 0) << log();
  const Json result = run_->result();
  EXPECT_EQ(result["state"], "Complete");
  EXPECT_EQ(result["restarts"], 1);
  EXPECT_TRUE(says("failure: rank 2: Error on node 1, exit code 5 -> RestartInPlace\n")) << log();
  EXPECT_TRUE(says("[rank 2] the reason\n")) << log();
  for (const char* rank : {"0", "1", "2", "3"}) {
    const std::string mark = std::string("[rank ") + rank + "] round ";
    EXPECT_TRUE(says(mark + "1 restart 0 port " + std::to_string(port_) + "\n")) << log();
    EXPECT_TRUE(says(mark + "2 restart 1 port " + std::to_string(port_ + 2) + "\n")) << log();
  }
}

TEST_F(CommandTest, ASignalIsNamedAndTheLastRestartFailsTheJob) {
  start("[ $RANK = 1 ] && kill -SEGV $$\nsleep 1000\n", "  failure: {maxRestarts: 1}\n");
  EXPECT_EQ(run_->wait(), 1) << log();
  const Json result = run_->result();
  EXPECT_EQ(result["state"], "Failed");
  EXPECT_EQ(result["restarts"], 1);
  EXPECT_TRUE(says("failed: rank 1 of node index 0")) << log();
  EXPECT_TRUE(says("exit code 139 (SIGSEGV); no restarts are left (spec.failure.maxRestarts: 1)"))
      << log();
}

TEST_F(CommandTest, ARuleFailsTheJobAtOnceAndIsNamed) {
  start("[ $RANK = 1 ] && exit 5\nsleep 1000\n",
        "  failure: {rules: [{exitCodes: [4], action: Ignore}, {exitCodes: [5], action: Fail}]}\n");
  EXPECT_EQ(run_->wait(), 1) << log();
  EXPECT_EQ(run_->result()["restarts"], 0);
  EXPECT_TRUE(says("exit code 5; spec.failure.rules[1] matches: action Fail")) << log();
}

TEST_F(CommandTest, ARuleMakesThePodOfTheFailedRankAnew) {
  start("[ $LOCKSTEP_RESTARTS = 1 ] && exit 0\n[ $RANK = 2 ] && exit 13\nsleep 1000\n",
        "  failure: {rules: [{exitCodes: [13], action: RecreatePod}]}\n");
  EXPECT_EQ(run_->wait(), 0) << log();
  EXPECT_EQ(run_->result()["restarts"], 1);
  EXPECT_TRUE(says("exit code 13 -> RecreatePod\n")) << log();
}

TEST_F(CommandTest, ARankThatReportsNothingForLongHangs) {
  start(
      "[ $LOCKSTEP_RESTARTS = 1 ] && exit 0\n"
      "echo '{\"step\": 7}' >> $LOCKSTEP_PROGRESS_FILE\n"
      "while [ $RANK != 3 ]; do sleep 0.5; echo '{}' >> $LOCKSTEP_PROGRESS_FILE; done\n"
      "sleep 1000\n",
      "  failure: {rules: [{event: Hang, after: 5s, action: RestartInPlace}]}\n"
      "  terminationGracePeriodSeconds: 1\n");
  EXPECT_EQ(run_->wait(), 0) << log();
  EXPECT_EQ(run_->result()["restarts"], 1);
  EXPECT_TRUE(says("failure: rank 3: Hang on node 1")) << log();
  EXPECT_TRUE(says("rank 3 hung after step 7")) << log();
}

TEST_F(CommandTest, TheEndOfRankZeroCompletesTheJobIfItSaysSo) {
  start("[ $RANK = 0 ] && exit 0\nsleep 1000\n",
        "  successPolicy: RankZero\n  terminationGracePeriodSeconds: 1\n");
  EXPECT_EQ(run_->wait(), 0) << log();
  EXPECT_EQ(run_->result()["state"], "Complete");
}

TEST_F(CommandTest, AJobThatIsActiveForTooLongFails) {
  start("sleep 1000\n", "  activeDeadlineSeconds: 2\n  terminationGracePeriodSeconds: 1\n");
  EXPECT_EQ(run_->wait(), 1) << log();
  EXPECT_TRUE(says("spec.activeDeadlineSeconds: 2")) << log();
}

TEST_F(CommandTest, CtrlCLeavesProgramsTheirGrace) {
  start(
      "trap 'echo saving; sleep 0.3; echo saved; exit 0' TERM\n"
      "echo ready\n"
      "while true; do sleep 0.05; done\n");
  ASSERT_TRUE(eventually([&] {
    const std::string text = log();
    size_t count = 0;
    for (size_t at = 0; (at = text.find("] ready\n", at)) != std::string::npos; ++at) ++count;
    return count == 4;
  })) << log();
  run_->signal(SIGINT);
  EXPECT_EQ(run_->wait(), 130) << log();
  for (const char* rank : {"0", "1", "2", "3"}) {
    EXPECT_TRUE(says(std::string("[rank ") + rank + "] saved\n")) << log();
  }
  EXPECT_TRUE(processes_with_environment((folder_.path() / "out").string()).empty());
}

TEST_F(CommandTest, OtherFrameworksFindTheirVariablesAndFiles) {
  start(
      "[ $JAX_COORDINATOR_ADDRESS = $MASTER_ADDR:$MASTER_PORT ] || exit 1\n"
      "echo jax $JAX_NUM_PROCESSES $JAX_PROCESS_ID\n"
      "echo \"tf $TF_CONFIG\"\n"
      "echo mpi $(cut -d' ' -f2 $OMPI_MCA_orte_default_hostfile) $(cut -d: -f2 $HYDRA_HOST_FILE)\n"
      "echo groups $(grep -c even $LOCKSTEP_WORLD_FILE)\n"
      "grep -q '\"name\":\"tensor.1\",\"ranks\":.2,3.' $LOCKSTEP_WORLD_FILE && echo mesh\n",
      "  processGroups: [{name: even, ranks: \"0::2\"}]\n  parallelism: {tensor: 2}\n",
      ", variables: [jax, tensorflow, mpi]");
  EXPECT_EQ(run_->wait(), 0) << log();
  EXPECT_TRUE(says("[rank 3] jax 4 3\n")) << log();
  EXPECT_TRUE(says("\"task\":{\"index\":3,\"type\":\"worker\"}}\n")) << log();
  EXPECT_TRUE(says("[rank 3] mpi slots=2 slots=2 2 2\n")) << log();
  EXPECT_TRUE(says("[rank 3] groups 1\n")) << log();
  EXPECT_TRUE(says("[rank 3] mesh\n")) << log();
}

}  // namespace
}  // namespace lockstep::test
