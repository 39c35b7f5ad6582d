// Kills workers with SIGKILL in every phase: the job completes in a later round with the same bits.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "common/base/random.h"
#include "common/base/sha256.h"
#include "tests/support/job_run.h"
#include "tests/support/processes.h"

namespace lockstep::test {
namespace {

constexpr int64_t kSteps = 24;
constexpr int64_t kSaveEvery = 8;
constexpr int kRanks = 4;

// 2 nodes x 2 processes, several buckets, accumulation and clipping. Wide enough that broadcasting
// and saving last long enough to be hit.
std::string job_yaml(int max_restarts, int save_every = kSaveEvery, const std::string& rules = "[]",
                     int64_t steps = kSteps) {
  return R"(apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata: {name: kills}
spec:
  nodes: 2
  processesPerNode: 2
  threadsPerProcess: 1
  train:
    model: {layers: 2, width: 128, heads: 4, context: 32}
    data: {path: text.txt, tokenizer: bytes, validationFraction: 0.05}
    steps: )" +
         std::to_string(steps) + R"(
    batch: {global: 16, micro: 2}
    bucketBytes: 262144
    optimizer: {learningRate: 1.0e-3, warmupSteps: 4, clipNorm: 0.5}
  checkpoint: {everySteps: )" +
         std::to_string(save_every) + R"(}
  failure: {maxRestarts: )" +
         std::to_string(max_restarts) + ", rules: " + rules + "}\n";
}

struct Target {
  WorkerPhase phase = WorkerPhase::kTraining;
  int64_t step = 0;  // minimum number of completed steps
  int64_t rank = 0;
};

std::string describe(const Target& target) {
  return std::string(worker_phase_name(target.phase)) + " at step " + std::to_string(target.step) +
         ", rank " + std::to_string(target.rank);
}

// Returns one of five moments to kill at, in turn; step and rank depend on the seed.
Target target_of(uint64_t seed) {
  Random random(seed);
  Target target{.rank = static_cast<int64_t>(random.below(kRanks))};
  switch (seed % 5) {
    case 0:
      target.phase = WorkerPhase::kForming;
      break;
    case 1:
      target.phase = WorkerPhase::kBroadcasting;
      break;
    case 2:
      target.step = 1 + static_cast<int64_t>(random.below(kSteps - 2));
      break;
    case 3:
      target.phase = WorkerPhase::kSaving;  // which goes on in the background of training
      target.step = kSaveEvery * (1 + static_cast<int64_t>(random.below(2)));
      break;
    default:
      target.step = kSteps - 1;
      break;
  }
  return target;
}

// Whether a checkpoint of that step is being written.
bool is_saving(const JobRun& run, int64_t step) {
  const std::string digits = std::to_string(step);
  const std::string name = ".unfinished-step-" + std::string(8 - digits.size(), '0') + digits + "-";
  std::error_code missing;
  for (const auto& entry :
       std::filesystem::directory_iterator(run.output() / "checkpoints", missing)) {
    if (entry.path().filename().string().starts_with(name)) return true;
  }
  return false;
}

// Watches the run's workers and kills (or stops) the target's rank when its progress page reports
// the phase. Returns false if the moment passed unseen: a phase can be shorter than one look.
bool kill_at(JobRun& run, const Target& target, int signal = SIGKILL) {
  std::map<pid_t, WorkerView> seen;
  while (run.running()) {
    std::erase_if(seen, [](const auto& entry) { return !alive(entry.first); });
    if (seen.size() < kRanks) {
      for (WorkerView& view : workers_below(run.pid())) {
        if (view.page) seen.insert_or_assign(view.pid, std::move(view));
      }
    }
    for (const auto& [pid, view] : seen) {
      if (view.config.rank != target.rank) continue;
      ProgressNumbers numbers;
      if (!view.page->read(numbers)) continue;
      const bool is_there =
          target.phase == WorkerPhase::kSaving
              ? is_saving(run, target.step)
              : numbers.phase == target.phase && numbers.step.value_or(0) >= target.step;
      if (is_there) {
        ::kill(pid, signal);
        if (signal == SIGSTOP) return true;
        return eventually([pid] { return !alive(pid); });
      }
      if (numbers.phase > target.phase && target.phase < WorkerPhase::kTraining) return false;
      if (numbers.phase >= WorkerPhase::kFinishing) return false;
    }
  }
  return false;
}

// Waits until all ranks have done a step of their round, in processes other than these. Returns the
// process of each rank; fewer if the run has ended.
std::map<int64_t, pid_t> pids_in_training(JobRun& run, const std::set<pid_t>& but) {
  std::map<int64_t, pid_t> pids;
  while (run.running() && pids.size() < kRanks) {
    pids.clear();
    usleep(5000);
    for (const WorkerView& view : workers_below(run.pid())) {
      ProgressNumbers numbers;
      if (but.contains(view.pid) || !view.page || !view.page->read(numbers)) continue;
      if (numbers.first_step_unix_seconds > 0) pids[view.config.rank] = view.pid;
    }
  }
  return pids;
}

class KillsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(folder_.path() / "text.txt", generated_text(200'000, 5));
    write_file(folder_.path() / "job.yaml", job_yaml(3));
  }

  JobRun::Options options(const std::string& name, const std::string& job = "job.yaml") const {
    return {.job = folder_.path() / job,
            .output = folder_.path() / name,
            .log = folder_.path() / (name + ".log")};
  }

  std::string final_weights(const std::string& name, int64_t steps = kSteps) const {
    const std::string digits = std::to_string(steps);
    const auto step = folder_.path() / name / "checkpoints" /
                      ("step-" + std::string(8 - digits.size(), '0') + digits);
    std::map<std::string, std::string> files;
    std::error_code missing;
    for (const auto& file : std::filesystem::directory_iterator(step, missing)) {
      if (file.path().extension() == ".safetensors") files[file.path()] = read_file(file.path());
    }
    std::string bytes;
    for (const auto& [path, content] : files) bytes += content;
    return hex(sha256(bytes));
  }

  std::string log_of(const std::string& name) const {
    const std::string log = read_file(folder_.path() / (name + ".log"));
    return log.size() > 6000 ? log.substr(log.size() - 6000) : log;
  }

  TemporaryFolder folder_;
};

TEST_F(KillsTest, TwentySeededKillsLeaveTheSameBits) {
  JobRun calm(options("calm"));
  ASSERT_EQ(calm.wait(), 0) << log_of("calm");
  EXPECT_EQ(calm.result().value("restarts", -1), 0);
  const std::string expected = final_weights("calm");
  ASSERT_NE(expected, hex(sha256(""))) << "no final checkpoint";

  std::array<int, 5> hits{};
  constexpr uint64_t kRunsMax = 60;
  for (uint64_t seed = 0; seed < kRunsMax; ++seed) {
    if (hits[seed % 5] == 4) continue;
    const std::string name = "kill-" + std::to_string(seed);
    const Target target = target_of(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(target));
    JobRun run(options(name));
    const bool hit = kill_at(run, target);
    ASSERT_EQ(run.wait(), 0) << log_of(name);
    EXPECT_EQ(final_weights(name), expected);
    EXPECT_EQ(run.result().value("restarts", -1), hit ? 1 : 0) << log_of(name);
    hits[seed % 5] += hit ? 1 : 0;
    std::filesystem::remove_all(folder_.path() / name);
  }
  for (size_t moment = 0; moment < hits.size(); ++moment) {
    EXPECT_EQ(hits[moment], 4) << describe(target_of(moment));
  }
}

// Only the lost rank's process is a new one, twice. All others serve both later rounds.
TEST_F(KillsTest, SurvivorsStayAndTheBitsAreTheSame) {
  constexpr int kLong = 200;
  write_file(folder_.path() / "long.yaml", job_yaml(3, kSaveEvery, "[]", kLong));
  JobRun calm(options("calm", "long.yaml"));
  ASSERT_EQ(calm.wait(), 0) << log_of("calm");
  JobRun run(options("stay", "long.yaml"));
  std::map<int64_t, pid_t> before = pids_in_training(run, {});
  for (const int64_t lost : {1, 2}) {
    ASSERT_EQ(before.size(), static_cast<size_t>(kRanks)) << log_of("stay");
    ASSERT_EQ(::kill(before[lost], SIGKILL), 0);
    const std::map<int64_t, pid_t> after = pids_in_training(run, {before[lost]});
    ASSERT_EQ(after.size(), static_cast<size_t>(kRanks)) << log_of("stay");
    for (const auto& [rank, pid] : after) {
      EXPECT_EQ(pid == before[rank], rank != lost) << "rank " << rank << "\n" << log_of("stay");
    }
    before = after;
  }
  ASSERT_EQ(run.wait(), 0) << log_of("stay");
  EXPECT_EQ(final_weights("stay", kLong), final_weights("calm", kLong));
  EXPECT_EQ(run.result().value("restarts", -1), 2);
}

TEST_F(KillsTest, MoreKillsThanMaxRestartsFailTheJobWithRankCodeAndLog) {
  write_file(folder_.path() / "once.yaml", job_yaml(1));
  JobRun run(options("once", "once.yaml"));
  const Target target{.phase = WorkerPhase::kTraining, .step = 1, .rank = 3};
  ASSERT_TRUE(kill_at(run, target)) << log_of("once");
  ASSERT_TRUE(kill_at(run, target)) << log_of("once");
  EXPECT_EQ(run.wait(), 1) << log_of("once");
  EXPECT_EQ(run.result().value("state", ""), "Failed") << run.standard_output();
  const std::string log = log_of("once");
  EXPECT_NE(log.find("rank 3"), std::string::npos) << log;
  EXPECT_NE(log.find("137"), std::string::npos) << log;
}

TEST_F(KillsTest, ARankThatStandsStillIsNamedAsHangingAndTheRoundIsDoneAgain) {
  write_file(folder_.path() / "hang.yaml",
             job_yaml(1, 0, "[{event: Hang, after: 6s, action: RestartInPlace}]"));
  JobRun run(options("hang", "hang.yaml"));
  const Target target{.phase = WorkerPhase::kTraining, .step = 5, .rank = 2};
  ASSERT_TRUE(kill_at(run, target, SIGSTOP)) << log_of("hang");
  EXPECT_EQ(run.wait(), 0) << log_of("hang");
  EXPECT_EQ(run.result().value("restarts", -1), 1) << log_of("hang");
  const std::string log = log_of("hang");
  EXPECT_NE(log.find("rank 2: Hang on node 1 -> RestartInPlace"), std::string::npos) << log;
}

// Two workers, and three servers that each have a copy of another one's parameters.
std::string served_job_yaml() {
  return R"(apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata: {name: served}
spec:
  nodes: 2
  parameterServers: {nodes: 3, copies: 1}
  threadsPerProcess: 1
  train:
    model: {layers: 2, width: 64, heads: 4, context: 32}
    data: {path: text.txt, tokenizer: bytes, validationFraction: 0.05}
    steps: 400
    batch: {global: 8}
    optimizer: {learningRate: 1.0e-3, warmupSteps: 4, clipNorm: 0}
  checkpoint: {everySteps: 200}
)";
}

// Returns the process of that rank once rank 0 has completed the step; 0 if the run ends first.
pid_t pid_at_step(JobRun& run, int64_t rank, int64_t step) {
  while (run.running()) {
    usleep(2000);
    bool is_there = false;
    pid_t found = 0;
    for (const WorkerView& view : workers_below(run.pid())) {
      ProgressNumbers numbers;
      if (view.config.rank == rank) found = view.pid;
      if (view.config.rank != 0 || !view.page || !view.page->read(numbers)) continue;
      is_there = numbers.step.value_or(0) >= step;
    }
    if (is_there && found > 0) return found;
  }
  return 0;
}

// Returns the process that started this one; 0 if it is gone.
pid_t parent_of(pid_t pid) {
  const std::string status = read_file("/proc/" + std::to_string(pid) + "/status");
  const size_t at = status.find("PPid:");
  return at == std::string::npos ? 0 : static_cast<pid_t>(std::atoi(status.c_str() + at + 5));
}

TEST_F(KillsTest, AServerWithCopiesThatIsLostEndsNoRound) {
  write_file(folder_.path() / "served.yaml", served_job_yaml());
  const auto losses_of = [&](const std::string& name) {
    std::vector<std::string> losses;
    std::istringstream metrics(read_file(folder_.path() / name / "checkpoints/metrics.jsonl"));
    for (std::string line; std::getline(metrics, line);) {
      const Result<Json> numbers = parse_json(line);
      if (numbers.ok() && numbers->contains("loss"))
        losses.push_back(dump_json((*numbers)["loss"]));
    }
    return losses;
  };
  JobRun calm(options("calm", "served.yaml"));
  ASSERT_EQ(calm.wait(), 0) << log_of("calm");
  const std::vector<std::string> expected = losses_of("calm");
  ASSERT_EQ(expected.size(), 400u);
  struct Loss {
    const char* name;
    int signal;
    bool is_of_pod;  // its agent is hit
  };
  for (const Loss& loss :
       {Loss{"killed", SIGKILL, false}, {"stopped", SIGSTOP, false}, {"lost", SIGKILL, true}}) {
    const std::string name = loss.name;
    SCOPED_TRACE(name);
    JobRun run(options(name, "served.yaml"));
    const pid_t server = pid_at_step(run, 3, 40);
    ASSERT_GT(server, 0) << log_of(name);
    const pid_t hit = loss.is_of_pod ? parent_of(server) : server;
    ASSERT_GT(hit, 1);
    ASSERT_EQ(::kill(hit, loss.signal), 0);
    ASSERT_EQ(run.wait(), 0) << log_of(name);
    EXPECT_EQ(run.result().value("restarts", -1), 1) << log_of(name);
    EXPECT_EQ(losses_of(name), expected);
    const std::string log = log_of(name);
    EXPECT_EQ(log.find("round 2:"), std::string::npos) << log;
  }
}

// Without copies. Each process goes on where the one before it was.
TEST_F(KillsTest, AWorkerNextToServersThatIsKilledEndsNoRound) {
  std::string yaml = served_job_yaml();
  const std::string servers = "{nodes: 3, copies: 1}";
  yaml.replace(yaml.find(servers), servers.size(), "{nodes: 2, consistency: asynchronous}");
  write_file(folder_.path() / "returns.yaml", yaml);
  JobRun run(options("returns", "returns.yaml"));
  const std::pair<int64_t, int64_t> kills[] = {{1, 40}, {0, 120}, {1, 220}};
  for (const auto& [rank, step] : kills) {
    const pid_t worker = pid_at_step(run, rank, step);
    ASSERT_GT(worker, 1) << log_of("returns");
    ASSERT_EQ(::kill(worker, SIGKILL), 0);
    ASSERT_TRUE(eventually([worker] { return !alive(worker); }));
  }
  ASSERT_EQ(run.wait(), 0) << log_of("returns");
  EXPECT_EQ(run.result().value("restarts", -1), 3) << log_of("returns");
  const std::string log = log_of("returns");
  EXPECT_EQ(log.find("round 2:"), std::string::npos) << log;
  EXPECT_NE(log.find("message=returning"), std::string::npos) << log;
  std::istringstream metrics(read_file(folder_.path() / "returns" / "checkpoints/metrics.jsonl"));
  int64_t step = 0;
  for (std::string line; std::getline(metrics, line);) {
    const Result<Json> numbers = parse_json(line);
    ASSERT_TRUE(numbers.ok()) << line;
    if (!numbers->contains("validationLoss")) {
      EXPECT_EQ((*numbers)["step"], ++step);
    }
  }
  EXPECT_EQ(step, 400);
}

}  // namespace
}  // namespace lockstep::test
