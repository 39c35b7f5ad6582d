// Real processes of workers and servers that train convolutional networks, whose running statistics
// are on the servers, too.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/agent/train/digits_world.h"
#include "tests/agent/train/fewer_bits.h"

namespace lockstep::train {
namespace {

WorkerWorld::Options local_job(int64_t workers) {
  WorkerWorld::Options options = digits_world(workers);
  options.train.model.batchNorm = "local";
  options.train.optimizer.clipNorm = 0;
  return options;
}

WorkerWorld::Options with_servers(WorkerWorld::Options options,
                                  const ParameterServersSpec& servers) {
  options.servers = servers;
  return options;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5 * expected[i]) << i;
}

// Validation normalises with the running statistics.
TEST(ConvnetServers, AreTheSameRanksWithoutServers) {
  struct Kind {
    int64_t workers, servers, micro;
  };
  for (const Kind& kind : {Kind{1, 1, 0}, Kind{2, 2, 8}, Kind{4, 3, 0}}) {
    SCOPED_TRACE(kind.workers);
    WorkerWorld::Options job = local_job(kind.workers);
    job.train.batch.micro = kind.micro;
    WorkerWorld without(job);
    ASSERT_NO_FATAL_FAILURE(without.run());
    WorkerWorld with(with_servers(job, {.nodes = kind.servers}));
    ASSERT_NO_FATAL_FAILURE(with.run());
    expect_near(with.metric("loss"), without.metric("loss"));
    expect_near(with.metric("validationLoss"), without.metric("validationLoss"));
    EXPECT_EQ(with.metric("validationTop5Accuracy"), without.metric("validationTop5Accuracy"));
    EXPECT_EQ(with.progress(0).validation_top5_accuracy,
              without.progress(0).validation_top5_accuracy);
  }
}

// The learning rate of running statistics is not that of the schedule, and no optimizer's states,
// decay or warm-up change it.
TEST(ConvnetServers, KeepStatisticsWhateverTheOptimizer) {
  for (const char* name : {"sgd", "adagrad"}) {
    SCOPED_TRACE(name);
    WorkerWorld::Options job = local_job(2);
    job.train.optimizer = {.name = name, .learningRate = 1e-3, .weightDecay = 0.1, .clipNorm = 0};
    job.train.optimizer.momentum = std::string(name) == "sgd" ? 0.9 : 0;
    WorkerWorld without(job);
    ASSERT_NO_FATAL_FAILURE(without.run());
    WorkerWorld with(with_servers(job, {.nodes = 2}));
    ASSERT_NO_FATAL_FAILURE(with.run());
    expect_near(with.metric("validationLoss"), without.metric("validationLoss"));
  }
}

TEST(ConvnetServers, SendFewerBits) {
  expect_near_with_fewer_bits(with_servers(local_job(2), {.nodes = 2}), 0.05);
}

TEST(ConvnetServers, LearnWithEveryConsistency) {
  const ParameterServersSpec kinds[] = {
      {.nodes = 2, .consistency = "asynchronous"},
      {.nodes = 2, .consistency = "boundedStaleness", .staleness = 3},
      {.nodes = 2, .backupWorkers = 1}};
  for (const ParameterServersSpec& servers : kinds) {
    SCOPED_TRACE(servers.consistency + " " + std::to_string(servers.backupWorkers));
    WorkerWorld::Options job = with_servers(local_job(3), servers);
    job.train.batch.global = 48;
    job.train.steps = 60;
    job.train.optimizer = {.learningRate = 2e-3, .clipNorm = 0};
    job.train.validation.everySteps = 0;
    WorkerWorld world(job);
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_GT(world.metric("validationAccuracy").back(), 0.8);
  }
}

TEST(ConvnetServers, ResumeWithTheSameBitsOnAnyNumberOfServers) {
  WorkerWorld::Options job = with_servers(local_job(2), {.nodes = 2});
  job.checkpoint_every = 3;
  WorkerWorld world(job);
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::vector<double> losses = world.metric("loss");
  const std::vector<double> validation = world.metric("validationLoss");
  std::filesystem::remove_all(world.checkpoint_folder(kDigitsSteps));
  world.change_servers({.nodes = 3});
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).resumed_step, 3);
  EXPECT_EQ(world.metric("loss"), losses);
  EXPECT_EQ(world.metric("validationLoss"), validation);
}

}  // namespace
}  // namespace lockstep::train
