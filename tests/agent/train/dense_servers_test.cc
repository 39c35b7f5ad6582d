// Real processes of workers and servers that train dense models, without a controller.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/agent/train/fewer_bits.h"
#include "tests/agent/train/small_worker.h"
#include "tests/agent/train/table_world.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

// The MLP of examples/mlp.yaml.
WorkerWorld::Options mlp_job() {
  WorkerWorld::Options options = table_world(1);
  options.train.steps = 60;
  options.train.validation.everySteps = 30;
  options.train.optimizer.clipNorm = 0;
  return options;
}

WorkerWorld::Options gpt_job() {
  WorkerWorld::Options options = small_world(1);
  options.train.steps = 24;
  options.train.validation.everySteps = 12;
  options.train.optimizer.clipNorm = 0;
  options.train.bucketBytes = TrainSpec{}.bucketBytes;
  options.checkpoint_every = 8;
  return options;
}

WorkerWorld::Options with_servers(WorkerWorld::Options options, int64_t workers,
                                  const ParameterServersSpec& servers) {
  options.nodes = workers;
  options.servers = servers;
  return options;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << i;
}

// Returns the number that a rank has logged, as name=number.
int64_t logged(const WorkerWorld& world, int64_t rank, const std::string& name) {
  const std::string log = world.log(rank);
  const size_t at = log.find(" " + name + "=");
  EXPECT_NE(at, std::string::npos) << name << " in " << log;
  return at == std::string::npos ? -1 : std::stoll(log.substr(at + name.size() + 2));
}

void expect_the_single_process(const WorkerWorld::Options& job) {
  WorkerWorld alone(job);
  ASSERT_NO_FATAL_FAILURE(alone.run());
  const std::vector<double> losses = alone.metric("loss");
  EXPECT_LT(losses.back(), losses.front());
  struct Shape {
    int64_t workers, servers;
  };
  for (const Shape& shape : {Shape{1, 1}, Shape{2, 2}}) {
    SCOPED_TRACE(testing::Message() << shape.workers << " workers, " << shape.servers);
    WorkerWorld world(with_servers(job, shape.workers, {.nodes = shape.servers}));
    ASSERT_NO_FATAL_FAILURE(world.run());
    expect_near(world.metric("loss"), losses);
    expect_near(world.metric("validationLoss"), alone.metric("validationLoss"));
    EXPECT_EQ(world.metric("validationAccuracy"), alone.metric("validationAccuracy"));
    const ProgressNumbers numbers = world.progress(0);
    EXPECT_EQ(numbers.samples, alone.progress(0).samples);
    EXPECT_EQ(numbers.tokens, alone.progress(0).tokens);
    EXPECT_EQ(numbers.validation_loss_per_byte.has_value(),
              alone.progress(0).validation_loss_per_byte.has_value());
    EXPECT_FALSE(numbers.gradient_norm) << "nobody knows it";
    EXPECT_EQ(numbers.holdings.optimizer_bytes, 0u);
    EXPECT_EQ(numbers.phase, WorkerPhase::kDone);
    for (int64_t rank = 0; rank < shape.workers; ++rank) {
      EXPECT_EQ(logged(world, rank, "staleness"), 0);
    }
  }
}

TEST(DenseServers, AreTheSingleProcessWithAnMlpAndEveryOptimizer) {
  OptimizerSpec sgd = mlp_job().train.optimizer;
  sgd.name = "sgd";
  sgd.momentum = 0.9;
  sgd.learningRate = 0.02;
  OptimizerSpec adagrad = mlp_job().train.optimizer;
  adagrad.name = "adagrad";
  adagrad.learningRate = 0.02;
  for (const OptimizerSpec& optimizer : {mlp_job().train.optimizer, sgd, adagrad}) {
    SCOPED_TRACE(optimizer.name);
    WorkerWorld::Options job = mlp_job();
    job.train.optimizer = optimizer;
    ASSERT_NO_FATAL_FAILURE(expect_the_single_process(job));
  }
}

TEST(DenseServers, AreTheSingleProcessWithAGpt) {
  ASSERT_NO_FATAL_FAILURE(expect_the_single_process(gpt_job()));
}

// Batches draw the same masks with servers and without.
TEST(DenseServers, AreTheSingleProcessWithABert) {
  WorkerWorld::Options job = gpt_job();
  job.train.model.family = "bert";
  job.train.sample.tokens = 0;
  job.train.model.vocabulary = 0;
  ASSERT_NO_FATAL_FAILURE(expect_the_single_process(job));
}

TEST(DenseServers, DropTheActivationsOfTheSingleProcess) {
  WorkerWorld::Options job = gpt_job();
  job.train.dropout = 0.1;
  ASSERT_NO_FATAL_FAILURE(expect_the_single_process(job));
}

// A worker stands still for a while, so the others run as far ahead as they may.
TEST(DenseServers, LearnWithinTheBoundOfTheirStaleness) {
  struct Kind {
    ParameterServersSpec servers;
    int64_t ahead;  // steps that the others may be ahead, or come to be
  };
  const Kind kinds[] = {{{.nodes = 2, .consistency = "asynchronous"}, 20},
                        {{.nodes = 2, .consistency = "boundedStaleness", .staleness = 0}, 0},
                        {{.nodes = 2, .consistency = "boundedStaleness", .staleness = 1}, 1},
                        {{.nodes = 1, .consistency = "boundedStaleness", .staleness = 3}, 3},
                        {{.nodes = 2, .consistency = "boundedStaleness", .staleness = 10}, 10}};
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.servers.consistency + " " + std::to_string(kind.ahead));
    WorkerWorld::Options job = with_servers(mlp_job(), 3, kind.servers);
    job.train.batch = {.global = 48, .micro = 4};
    job.train.steps = 600;
    job.train.validation.everySteps = 0;
    WorkerWorld world(job);
    world.start();
    world.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.step > 3; });
    world.kill(2, SIGSTOP);
    const int64_t slowest = world.progress(2).step.value_or(0);
    ASSERT_LT(slowest, 500);
    world.wait_until(
        0, [&](const ProgressNumbers& numbers) { return numbers.step > slowest + kind.ahead; });
    world.kill(2, SIGCONT);
    ASSERT_EQ(world.wait(), std::vector<int>(static_cast<size_t>(world.size()), 0));
    EXPECT_LT(world.progress(0).loss.value_or(1), 0.2);
    EXPECT_GT(world.metric("validationAccuracy").back(), 0.9);
    int64_t most = 0;
    for (int64_t rank = 0; rank < 3; ++rank) {
      most = std::max(most, logged(world, rank, "staleness"));
    }
    EXPECT_GE(most, kind.ahead - 1) << "the others waited too soon";
    if (kind.servers.consistency == "boundedStaleness") {
      EXPECT_LE(most, kind.servers.staleness);
    }
  }
}

TEST(DenseServers, LearnWithABackupWorker) {
  WorkerWorld::Options job = with_servers(mlp_job(), 3, {.nodes = 2, .backupWorkers = 1});
  job.train.batch = {.global = 48, .micro = 4};
  job.train.steps = 200;
  WorkerWorld world(job);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_LT(world.metric("validationLoss").back(), 0.3);
  int64_t late = 0;
  for (int64_t rank = 0; rank < 3; ++rank) late += logged(world, rank, "lateSteps");
  EXPECT_GE(late, 100) << "every step leaves one of three out, and some servers another one";
}

TEST(DenseServers, SendFewerBits) {
  expect_near_with_fewer_bits(with_servers(mlp_job(), 2, {.nodes = 2}), 0.02);
}

TEST(DenseServers, ResumeWithTheSameBitsOnAnyNumberOfServers) {
  WorkerWorld world(with_servers(gpt_job(), 2, {.nodes = 2}));
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::vector<double> losses = world.metric("loss");
  const std::vector<double> validation = world.metric("validationLoss");
  const std::string sample = read_file(world.checkpoints() + "/sample.txt");
  EXPECT_TRUE(sample.starts_with("and ")) << sample;
  ASSERT_EQ(world.checkpoint_folders().size(), 3u);
  for (const int64_t servers : {3, 1}) {
    SCOPED_TRACE(servers);
    std::filesystem::remove_all(world.checkpoint_folder(24));
    std::filesystem::remove_all(world.checkpoint_folder(16));
    world.change_servers({.nodes = servers});
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_EQ(world.storage_notes(0).resumed_step, 8);
    EXPECT_EQ(world.metric("loss"), losses);
    EXPECT_EQ(world.metric("validationLoss"), validation);
    EXPECT_EQ(read_file(world.checkpoints() + "/sample.txt"), sample);
  }
}

TEST(DenseServers, SaveTheSameStepWhenOneIsStopped) {
  for (const int64_t stopped : {1, 3}) {
    SCOPED_TRACE(stopped);
    WorkerWorld::Options job = with_servers(mlp_job(), 2, {.nodes = 2});
    job.train.steps = 1'000'000;
    job.train.validation.everySteps = 0;
    WorkerWorld world(job);
    world.start();
    world.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.step > 3; });
    world.kill(stopped, SIGTERM);
    EXPECT_EQ(world.wait(), std::vector<int>(4, kExitStopped)) << world.log(0);
    const int64_t step = *world.progress(0).step;
    EXPECT_EQ(world.progress(1).step, step);
    EXPECT_EQ(world.checkpoint_folders(), std::vector<std::string>{world.checkpoint_folder(step)});
  }
}

// A worker that has pulls of the living server under way does not wait for them.
TEST(DenseServers, BlameAServerThatDied) {
  WorkerWorld::Options job = with_servers(mlp_job(), 2, {.nodes = 2});
  job.train.steps = 1'000'000;
  job.train.validation.everySteps = 0;
  WorkerWorld world(job);
  world.start();
  world.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.step > 3; });
  world.kill(3, SIGKILL);
  world.wait_until(0, [&](const ProgressNumbers&) { return !world.runs(0) || !world.runs(1); });
  const int64_t ended = world.runs(0) ? 1 : 0;
  for (const int64_t rank : {1 - ended, int64_t{2}}) world.kill(rank, SIGKILL);
  EXPECT_EQ(world.wait()[static_cast<size_t>(ended)], kExitPeerLost) << world.log(ended);
  EXPECT_EQ(world.progress(ended).suspect_rank, 3) << world.log(ended);
}

}  // namespace
}  // namespace lockstep::train
