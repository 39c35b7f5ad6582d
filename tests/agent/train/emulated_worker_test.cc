// A whole worker on an emulated CUDA device, compared with one on the CPU: the same losses, a
// checkpoint that either can continue from, and its messages about the device.
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "agent/train/job_plan.h"
#include "tests/agent/train/expect_near.h"
#include "tests/agent/train/table_world.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

constexpr int64_t kSteps = 6;

WorkerWorld::Options tiny(bool on_gpu) {
  TrainSpec train;
  train.model = {.layers = 1, .width = 32, .heads = 2, .context = 16};
  train.data = {.validationFraction = 0.01};
  train.steps = kSteps;
  train.batch = {.global = 4, .micro = 2};
  train.optimizer = {.learningRate = 5e-3, .epsilon = 1e-5, .clipNorm = 0.5};
  train.sample = {.tokens = 4, .prompt = "and ", .temperature = 0};
  WorkerWorld::Options options{.train = train, .checkpoint_every = 3};
  if (!on_gpu) return options;
  options.gpu = 0;
  options.program = "tests/emulated_worker";
  return options;
}

TEST(EmulatedWorker, LearnsWhatTheOneOnTheCpuLearnsAndGoesOnFromItsCheckpoint) {
  WorkerWorld cpu(tiny(false));
  ASSERT_NO_FATAL_FAILURE(cpu.run());
  WorkerWorld gpu(tiny(true));
  ASSERT_NO_FATAL_FAILURE(gpu.run());
  EXPECT_NE(gpu.log(0).find("device=emulated"), std::string::npos) << gpu.log(0);
  EXPECT_NE(cpu.log(0).find("device=CPU"), std::string::npos) << cpu.log(0);
  for (const char* name : {"loss", "gradientNorm", "validationLoss"}) {
    SCOPED_TRACE(name);
    expect_near(gpu.metric(name), cpu.metric(name), 1e-5);
  }
  EXPECT_EQ(read_file(gpu.checkpoints() + "/sample.txt"),
            read_file(cpu.checkpoints() + "/sample.txt"));

  expect_same_bits_from(gpu, 3);
}

// The ranks share one device, so gradients go through host memory.
TEST(EmulatedWorker, SumsTheGradientsOfTwoRanksAsTheOnesOnTheCpuDo) {
  WorkerWorld::Options options[] = {tiny(false), tiny(true)};
  for (WorkerWorld::Options& each : options) {
    each.per_node = 2;
    each.train.batch = {.global = 4, .micro = 1};
    each.train.bucketBytes = 4096;
  }
  WorkerWorld cpu(options[0]);
  ASSERT_NO_FATAL_FAILURE(cpu.run());
  WorkerWorld gpu(options[1]);
  ASSERT_NO_FATAL_FAILURE(gpu.run());
  for (const char* name : {"loss", "gradientNorm", "validationLoss"}) {
    SCOPED_TRACE(name);
    expect_near(gpu.metric(name), cpu.metric(name), 1e-5);
  }
}

// Three ranks share 4 samples unevenly. One is killed, and the two that are left go on from states
// in memory.
TEST(EmulatedWorker, ResumesFromMemoryInASmallerWorldAsTheOneOnTheCpuWould) {
  std::vector<double> losses[2];
  for (const bool on_gpu : {false, true}) {
    WorkerWorld::Options options = tiny(on_gpu);
    options.nodes = 3;
    options.train.steps = 40;
    options.train.batch = {.global = 4, .micro = 0};
    options.train.sample = {};
    options.train.data.validationFraction = 0;
    options.checkpoint_every = 0;
    options.memory_every = 1;
    options.memory_copies = 1;
    WorkerWorld world(options);
    if (on_gpu) {
      ASSERT_NO_FATAL_FAILURE(world.start());
      world.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.step >= 5; });
      world.kill(1, SIGKILL);
      world.wait();
      world.change_nodes({0, 2});
    }
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_EQ(world.storage_notes(0).from_memory, on_gpu ? 1 : 0) << world.log(0);
    losses[on_gpu] = world.metric("loss");
  }
  expect_near(losses[1], losses[0], 1e-5);
}

// A Llama in bf16 with recomputed blocks, and gradients of two micro-batches. The single rank on
// the CPU has four of them, in fp32.
TEST(EmulatedWorker, TwoOfALlamaInBf16LearnWhatOneOnTheCpuLearnsAndTwiceTheSameBits) {
  const auto llama = [](bool on_gpu) {
    WorkerWorld::Options options = tiny(on_gpu);
    options.train.model.family = "llama";
    options.train.model.kvHeads = 1;
    options.train.model.hiddenWidth = 48;
    options.train.steps = 3;
    options.train.batch.global = 8;
    options.checkpoint_every = 0;
    if (!on_gpu) return options;
    options.train.precision = "bf16";
    options.train.recompute = "blocks";
    options.per_node = 2;
    return options;
  };
  WorkerWorld cpu(llama(false));
  ASSERT_NO_FATAL_FAILURE(cpu.run());
  WorkerWorld gpu(llama(true)), again(llama(true));
  for (WorkerWorld* world : {&gpu, &again}) {
    ASSERT_NO_FATAL_FAILURE(world->run());
    expect_near(world->metric("loss"), cpu.metric("loss"), 1e-2);
    expect_near(world->metric("gradientNorm"), cpu.metric("gradientNorm"), 5e-2);
  }
  EXPECT_NE(gpu.log(0).find("host memory"), std::string::npos) << gpu.log(0);
  for (const char* file : {"model", "optimizer"}) {
    EXPECT_TRUE(gpu.checkpoint_bytes(3, file) == again.checkpoint_bytes(3, file)) << file;
    EXPECT_FALSE(gpu.checkpoint_bytes(3, file).empty()) << file;
  }
}

// In fp32 one rank has two micro-batches in a step, in bf16 two ranks share the device.
TEST(EmulatedWorker, OfAnMlpLearnsWhatTheOneOnTheCpuLearnsAndGoesOnFromItsCheckpoint) {
  const auto mlp = [](int64_t ranks, const char* precision) {
    WorkerWorld::Options options = table_world(1, ranks);
    options.train.steps = 8;
    options.train.batch.micro = 16;
    options.train.optimizer.learningRate = 1e-2;
    options.train.precision = precision;
    options.train.validation = {};
    options.checkpoint_every = 6;
    return options;
  };
  const auto on_gpu = [](WorkerWorld::Options options) {
    options.gpu = 0;
    options.program = "tests/emulated_worker";
    return options;
  };
  WorkerWorld cpu(mlp(1, "fp32")), fp32(on_gpu(mlp(1, "fp32"))), bf16(on_gpu(mlp(2, "bf16")));
  for (WorkerWorld* world : {&cpu, &fp32, &bf16}) {
    ASSERT_NO_FATAL_FAILURE(world->run());
    EXPECT_LT(world->metric("loss").back(), world->metric("loss").front() - 0.2);
  }
  EXPECT_EQ(bf16.progress(0).precision, PrecisionInUse::kBf16);
  for (const char* name : {"loss", "gradientNorm", "validationLoss"}) {
    SCOPED_TRACE(name);
    expect_near(fp32.metric(name), cpu.metric(name), 1e-5);
    expect_near(bf16.metric(name), cpu.metric(name), 1e-2);
  }
  EXPECT_EQ(fp32.metric("validationAccuracy"), cpu.metric("validationAccuracy"));
  expect_same_bits_from(fp32, 6);
  expect_same_bits_from(bf16, 6);
}

TEST(EmulatedWorker, AllocatesWhatTheJobsPlanSays) {
  for (const char* precision : {"fp32", "bf16"}) {
    WorkerWorld::Options options = tiny(true);
    options.train.precision = precision;
    options.train.steps = 1;
    TrainingJobSpec spec;
    spec.gpusPerNode = 1;
    spec.train = options.train;
    const parallel::MemoryPlan plan = plan_job(spec).value().memory;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.run());
    for (const auto& [name, bytes] :
         {std::pair("totalBytes=", plan.device.bytes), std::pair("pinnedBytes=", plan.pinned.bytes),
          std::pair("reserveBytes=", plan.device.reserve)}) {
      EXPECT_NE(world.log(0).find(name + std::to_string(bytes)), std::string::npos)
          << name << bytes << "\n"
          << world.log(0);
    }
  }
}

TEST(EmulatedWorker, EndsWithWordsWhereItsGpuIsNot) {
  WorkerWorld::Options options = tiny(true);
  options.gpu = 1;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  EXPECT_EQ(world.wait(), std::vector<int>{kExitNoDevice});
  EXPECT_NE(world.log(0).find("GPU 1 (numbered from 0), but its process sees only 1."),
            std::string::npos)
      << world.log(0);
}

}  // namespace
}  // namespace lockstep::train
