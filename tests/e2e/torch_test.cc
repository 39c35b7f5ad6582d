// A PyTorch script, unchanged from how it runs under torchrun: it reaches the same loss, however
// often its ranks are killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "common/base/random.h"
#include "tests/support/job_run.h"
#include "tests/support/processes.h"
#include "tests/support/torch.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 600;
constexpr int kEvery = 50;
constexpr int kRanks = 4;
constexpr int kKills = 2;

uint64_t seed_of_this_run() {
  const char* given = std::getenv("LOCKSTEP_TEST_SEED");
  return given == nullptr ? 20260101 : std::strtoull(given, nullptr, 10);
}

// Returns the loss of the last line "step <step> loss <loss>", which may have a prefix.
std::optional<double> loss_in(const std::string& output, int step) {
  const std::string words = "step " + std::to_string(step) + " loss ";
  const size_t at = output.rfind(words);
  if (at == std::string::npos) return std::nullopt;
  return std::strtod(output.c_str() + at + words.size(), nullptr);
}

class TorchTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_torch()) GTEST_SKIP() << "no PyTorch for " << kPython;
    fs::copy(fs::path(LOCKSTEP_SOURCE_DIR) / "examples/ddp.py", path("ddp.py"));
  }
  fs::path path(const std::string& name) const { return folder_.path() / name; }

  // Returns the last loss under torchrun. Redirects the streams, because torchrun's default for
  // them is broken with Python 3.11.
  double torchrun_loss() const {
    const std::string output = path("torchrun.out");
    const std::string command =
        "cd " + folder_.path().string() + " && OMP_NUM_THREADS=1 " + kPython +
        " -m torch.distributed.run --redirects 2 --tee 1 --log_dir torchrun-logs --nnodes 1" +
        " --nproc_per_node " + std::to_string(kRanks) + " --master_port " +
        std::to_string(free_port()) + " ddp.py --steps " + std::to_string(kSteps) + " --every " +
        std::to_string(kEvery) + " --checkpoint torchrun/ddp.pt > " + output + " 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << read_file(output);
    const std::optional<double> loss = loss_in(read_file(output), kSteps);
    EXPECT_TRUE(loss) << read_file(output);
    return loss.value_or(0);
  }

  void start() {
    std::ostringstream job;
    job << "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: ddp}\nspec:\n"
        << "  nodes: 2\n  processesPerNode: 2\n  threadsPerProcess: 1\n"
        << "  rendezvous: {port: " << free_port() << "}\n"
        << "  command: [" << kPython << ", ddp.py, --steps, \"" << kSteps << "\", --every, \""
        << kEvery << "\"]\n";
    write_file(path("job.yaml"), job.str());
    run_ = std::make_unique<JobRun>(
        JobRun::Options{.job = path("job.yaml"), .output = path("out"), .log = path("log")});
  }
  std::string log() const { return read_file(path("log")); }

  // Finds a rank's process by its environment.
  std::optional<pid_t> rank_process(int rank, int round) const {
    const std::string folder = "LOCKSTEP_POD_ROOT=" + path("out").string();
    for (const pid_t pid : processes_with_environment(folder)) {
      const std::string environment = read_file("/proc/" + std::to_string(pid) + "/environ");
      const auto has = [&](const std::string& entry) {
        return environment.find('\0' + entry + '\0') != std::string::npos;
      };
      const std::vector<std::string> words = arguments(pid);
      if (!words.empty() && words[0] == kPython && has("RANK=" + std::to_string(rank)) &&
          has("LOCKSTEP_ROUND=" + std::to_string(round))) {
        return pid;
      }
    }
    return std::nullopt;
  }

  // Whether rank 0 has written this step to a progress file.
  bool has_done(int64_t step) const {
    const std::string wanted = "{\"step\": " + std::to_string(step) + ",";
    std::error_code error;  // folders appear and disappear
    fs::recursive_directory_iterator at(path("out"), error);
    for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
      if (at->path().filename() == "rank-0.jsonl" &&
          read_file(at->path()).find(wanted) != std::string::npos) {
        return true;
      }
    }
    return false;
  }

  TemporaryFolder folder_;
  std::unique_ptr<JobRun> run_;
};

TEST_F(TorchTest, RanksThatAreKilledComeBackAndEndWithTheLossOfTorchrun) {
  const uint64_t seed = seed_of_this_run();
  RecordProperty("seed", std::to_string(seed));
  std::printf("LOCKSTEP_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  const double expected = torchrun_loss();
  start();
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    const int round = kill_number + 1;
    const int rank = static_cast<int>(random.below(kRanks));
    // Kills after a random step; rank 0's progress file shows when it is done.
    const int64_t step =
        (kSteps / (kKills + 1)) * kill_number + 1 + static_cast<int64_t>(random.below(100));
    std::optional<pid_t> victim;
    ASSERT_TRUE(eventually([&] { return (victim = rank_process(rank, round)).has_value(); }))
        << log();
    ASSERT_TRUE(eventually([&] { return has_done(step); }))
        << "step " << step << " of round " << round << "\n"
        << log();
    ASSERT_EQ(kill(*victim, SIGKILL), 0);
    ASSERT_TRUE(eventually([&] {
      return log().find("failure: rank " + std::to_string(rank) + ": Signal on node " +
                        std::to_string(rank / 2) + ", exit code 137 (SIGKILL)") !=
             std::string::npos;
    })) << "rank "
        << rank << " is named\n"
        << log();
  }
  EXPECT_EQ(run_->wait(), 0) << log();
  const Json result = run_->result();
  ASSERT_TRUE(result.is_object()) << log();
  EXPECT_EQ(result["state"], "Complete");
  EXPECT_EQ(result["restarts"], kKills);
  EXPECT_EQ(result["step"], kSteps);
  const std::optional<double> loss = loss_in(log(), kSteps);
  ASSERT_TRUE(loss) << log();
  EXPECT_NEAR(*loss, expected, 1e-6);
  EXPECT_NEAR(result["loss"].get<double>(), expected, 1e-6);
}

}  // namespace
}  // namespace lockstep::test
