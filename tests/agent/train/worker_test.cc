// Jobs of whole workers: what they learn, report and store, and their error messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "kernels/ops/matmul.h"
#include "tests/agent/train/small_worker.h"
#include "tests/agent/train/stored_tensors.h"

namespace lockstep::train {
namespace {

// Reads the parameters of the last checkpoint, by name.
std::map<std::string, std::vector<float>> final_parameters(const WorkerWorld& world) {
  return stored_tensors(world.checkpoint_folder(60), "model");
}

// Returns the norm of the difference, relative to the norm of `a`.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(difference / norm);
}

// Removes the key part of the attention's bias: its gradient is only rounding errors, which Adam
// amplifies.
std::vector<float> without_key_bias(const std::string& name, std::vector<float> values) {
  if (!name.ends_with("attn.c_attn.bias")) return values;
  const auto third = static_cast<std::ptrdiff_t>(values.size() / 3);
  values.erase(values.begin() + third, values.begin() + 2 * third);
  return values;
}

TEST(Worker, LearnsTheSameOnOneTwoAndFourProcesses) {
  WorkerWorld one(small_world(1));
  ASSERT_NO_FATAL_FAILURE(one.run());
  WorkerWorld four(small_world(2, 2));
  ASSERT_NO_FATAL_FAILURE(four.run());
  const WorkerWorld& two = undisturbed();

  const std::vector<double> losses = one.metric("loss");
  ASSERT_EQ(losses.size(), static_cast<size_t>(kSmallSteps));
  EXPECT_NEAR(losses.front(), std::log(256.0), 0.02 * std::log(256.0));
  EXPECT_LE(losses.back(), losses.front() - 1.0);
  const std::vector<double> norms = one.metric("gradientNorm");
  EXPECT_GT(std::count_if(norms.begin(), norms.end(), [](double norm) { return norm > 0.5; }), 10);
  EXPECT_NE(two.log(0).find("buckets=4"), std::string::npos) << two.log(0);
  EXPECT_NE(two.log(0).find("accumulation=4"), std::string::npos) << two.log(0);

  const auto parameters = final_parameters(one);
  ASSERT_FALSE(parameters.empty());
  for (const WorkerWorld* other : {&two, static_cast<const WorkerWorld*>(&four)}) {
    for (const char* name : {"loss", "validationLoss"}) {
      const std::vector<double> a = one.metric(name);
      const std::vector<double> b = other->metric(name);
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(b[i], a[i], 1e-5 * a[i]) << name << i;
    }
    for (const auto& [name, values] : final_parameters(*other)) {
      EXPECT_LE(relative_difference(without_key_bias(name, parameters.at(name)),
                                    without_key_bias(name, values)),
                1e-5)
          << name << " on " << other->size();
    }
  }
}

TEST(Worker, TheSameRunTwiceIsTheSameBitForBit) {
  WorkerWorld again(small_world(2));
  ASSERT_NO_FATAL_FAILURE(again.run());
  expect_same_end(undisturbed(), again);
}

TEST(Worker, ReportsEveryNumberOnItsPage) {
  const ProgressNumbers numbers = undisturbed().progress(0);
  EXPECT_EQ(numbers.phase, WorkerPhase::kDone);
  EXPECT_EQ(numbers.step, kSmallSteps);
  EXPECT_EQ(numbers.samples, kSmallSteps * 16);
  EXPECT_EQ(numbers.tokens, kSmallSteps * 16 * 32);
  EXPECT_EQ(numbers.loss, undisturbed().metric("loss").back());
  EXPECT_EQ(numbers.validation_loss, undisturbed().metric("validationLoss").back());
  EXPECT_EQ(numbers.validation_loss_per_byte, numbers.validation_loss) << "tokens are bytes";
  EXPECT_EQ(numbers.checkpoint_step, kSmallSteps);
  EXPECT_EQ(numbers.suspect_rank, -1);
  EXPECT_GT(numbers.tokens_per_second, 0);
  EXPECT_GT(numbers.first_step_unix_seconds, 0);
  // 6N + 12LCT and 6N + 6LCT differ by 6LCT.
  const double per_token = *numbers.palm_flops_per_second / *numbers.tokens_per_second;
  EXPECT_NEAR(per_token - *numbers.causal_flops_per_second / *numbers.tokens_per_second,
              6.0 * 2 * 32 * 32, 1e-3);
  EXPECT_FALSE(numbers.palm_mfu) << "on the CPU";
  EXPECT_LE(*numbers.data_seconds + *numbers.forward_seconds + *numbers.backward_seconds +
                *numbers.communication_seconds + *numbers.update_seconds,
            *numbers.step_seconds * 1.001);
}

// Returns a number of the line `message` in the log of a rank.
double logged(const WorkerWorld& world, int64_t rank, const std::string& message,
              const std::string& name) {
  const std::string log = world.log(rank);
  const size_t line = log.find("message=" + message + " ");
  const size_t at = log.find(" " + name + "=", line);
  EXPECT_LT(at, log.find('\n', line)) << message << ", " << name << " in " << log;
  return at == std::string::npos ? -1 : std::stod(log.substr(at + name.size() + 2));
}

// Two ranks send one gradient per parameter in a step, with every algorithm. The rest is scalars.
TEST(Worker, LogsTheBytesThatEachRankSentInItsSteps) {
  WorkerWorld::Options options = small_world(2);
  options.train.steps = 5;
  options.train.validation = {};
  options.stores = false;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  const double gradients = logged(world, 0, "memory", "gradientsBytes");
  for (const int64_t rank : {0, 1}) {
    EXPECT_EQ(logged(world, rank, "traffic", "steps"), 5);
    const double sent = logged(world, rank, "traffic", "bytesSent");
    EXPECT_GE(sent, 5 * gradients) << rank;
    EXPECT_LE(sent, 5.1 * gradients) << rank;
    EXPECT_EQ(logged(world, rank, "traffic", "bytesSentToOtherHosts"), sent) << rank;
    EXPECT_EQ(logged(world, rank, "traffic", "bytesReceived"),
              logged(world, 1 - rank, "traffic", "bytesSent"));
  }
}

TEST(Worker, ComputesInFp32AndSaysSoIfOneRankLacksBf16) {
  WorkerWorld::Options options = small_world(2);
  options.train.precision = "bf16";
  options.train.steps = 2;
  options.max_cpu_isa = "avx2";
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  for (const int64_t rank : {0, 1}) {
    EXPECT_EQ(world.progress(rank).precision, PrecisionInUse::kFp32) << rank;
  }
  EXPECT_EQ(world.progress(0).lacks_bf16, kernels::cpu_matmul_support().native_bf16 ? 0 : 1);
  EXPECT_EQ(world.progress(1).lacks_bf16, 1);
  EXPECT_NE(world.log(0).find("computing in fp32, not in bf16"), std::string::npos) << world.log(0);
}

TEST(Worker, ComputesInBf16WhereEveryRankCan) {
  if (!kernels::cpu_matmul_support().native_bf16) GTEST_SKIP() << "this CPU can't multiply bf16";
  WorkerWorld::Options options = small_world(2);
  options.train.precision = "bf16";
  options.train.steps = 2;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.progress(0).precision, PrecisionInUse::kBf16);
  EXPECT_EQ(world.progress(0).lacks_bf16, 0);
}

TEST(Worker, RefusesAnInstructionSetThatItDoesNotKnow) {
  WorkerWorld::Options options = small_world(1);
  options.max_cpu_isa = "avx3";
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  EXPECT_EQ(world.wait(), std::vector<int>{kExitBadConfig});
  EXPECT_NE(world.log(0).find("LOCKSTEP_MAX_CPU_ISA: expected one of"), std::string::npos)
      << world.log(0);
}

TEST(Worker, WritesTheSampleThatThePromptBegins) {
  const std::string sample = read_file(undisturbed().checkpoints() + "/sample.txt");
  EXPECT_EQ(sample.substr(0, 4), "and ");
  EXPECT_EQ(sample.size(), 4u + 20u + 1u);
}

TEST(Worker, StopsWhenTheLossIsNotFinite) {
  WorkerWorld::Options options = small_world(2);
  options.train.optimizer = {
      .learningRate = 100, .schedule = "constant", .weightDecay = 10, .clipNorm = 0};
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  // A rank may see the other one leave before it has checked the loss itself.
  const std::vector<int> codes = world.wait();
  EXPECT_EQ(std::ranges::count(codes, kExitNotFinite) + std::ranges::count(codes, kExitPeerLost), 2)
      << world.log(0);
  EXPECT_GE(std::ranges::count(codes, kExitNotFinite), 1) << world.log(0);
}

TEST(Worker, PrintsTheSampleAlsoWhereNothingIsStored) {
  WorkerWorld::Options options = small_world(1);
  options.train.steps = 2;
  options.stores = false;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.log(0).find("text=\"and "), std::string::npos) << world.log(0);
  EXPECT_FALSE(std::filesystem::exists(world.checkpoints()));
}

struct LastSave {
  int64_t every;
  int64_t step;  // of the newest checkpoint in the end; -1: there is none
};

TEST(Worker, WritesNoCheckpointAtTheEndOfAJobThatWantsNone) {
  for (const auto& [every, step] : {LastSave{0, -1}, LastSave{4, 8}, LastSave{5, 10}}) {
    WorkerWorld::Options options = small_world(1);
    options.train.steps = 10;
    options.checkpoint_every = every;
    options.checkpoint_at_end = false;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_EQ(world.progress(0).checkpoint_step, step) << every;
    EXPECT_EQ(world.progress(0).step, 10) << every;
    EXPECT_EQ(std::filesystem::exists(world.checkpoints() + "/step-00000010"), step == 10) << every;
    EXPECT_EQ(std::filesystem::exists(world.checkpoints() + "/step-00000008"), step == 8) << every;
    EXPECT_EQ(read_file(world.checkpoints() + "/sample.txt").substr(0, 4), "and ") << every;
    const std::vector<double> losses = world.metric("loss");
    ASSERT_EQ(losses.size(), 10u) << every;
    ASSERT_NO_FATAL_FAILURE(world.run());  // continues from the checkpoint, if there is one
    EXPECT_EQ(world.metric("loss"), losses) << every;
    EXPECT_EQ(world.progress(0).checkpoint_step, step) << every;
  }
}

TEST(Worker, EndsWellWithoutMetricsAndSampleIfTheyCannotBeWritten) {
  WorkerWorld::Options options = small_world(2);
  options.train.steps = 2;
  WorkerWorld world(options);
  std::filesystem::create_directories(world.checkpoints() + "/sample.txt");
  std::filesystem::create_directories(world.checkpoints() + "/metrics.jsonl");
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.log(0).find("the sample can't be written"), std::string::npos) << world.log(0);
  EXPECT_NE(world.log(0).find("metrics can't be written"), std::string::npos) << world.log(0);
}

// A line that is cut off in the middle would end the part of the file that can be read.
TEST(Worker, LosesWholeLinesOfMetricsWhereTheDiskIsFull) {
  WorkerWorld::Options options = small_world(1);
  options.train.steps = 3;
  WorkerWorld world(options);
  std::filesystem::create_directories(world.checkpoints());
  std::filesystem::create_symlink("/dev/full", world.checkpoints() + "/metrics.jsonl");
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.log(0).find("lines of metrics are lost"), std::string::npos) << world.log(0);
}

}  // namespace
}  // namespace lockstep::train
