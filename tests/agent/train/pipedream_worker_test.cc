// Real workers whose steps overlap save, stop and are killed.
#include <gtest/gtest.h>

#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "agent/train/exit_code.h"
#include "common/api/timeline.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

constexpr int64_t kSteps = 30;
constexpr int64_t kStages = 4;

// Checkpoints and validations come sooner than all stages learn how the files of the checkpoint
// before them were written.
WorkerWorld::Options four_stages() {
  WorkerWorld::Options options{.nodes = 2, .per_node = 2, .pipeline = kStages};
  options.schedule = "pipedream";
  options.train.model = {.layers = 4, .width = 16, .heads = 2, .context = 16, .head = "untied"};
  options.train.data = {.validationFraction = 0.05};
  options.train.steps = kSteps;
  options.train.batch = {.global = 4, .micro = 2};
  options.train.optimizer = {
      .learningRate = 5e-3, .warmupSteps = 5, .epsilon = 1e-5, .clipNorm = 0};
  options.train.validation = {.everySteps = 4};
  options.checkpoint_every = 3;
  return options;
}

struct Ended {
  std::vector<double> losses;
  std::vector<double> norms;
  std::string model;

  bool operator==(const Ended&) const = default;
};

Ended result_of(const WorkerWorld& world) {
  return {world.metric("loss"), world.metric("gradientNorm"),
          world.checkpoint_bytes(kSteps, "model")};
}

TEST(PipeDreamWorkers, CompleteTheirCheckpointsWhileStepsOverlap) {
  for (const int64_t every : {1, 2, 3, 7}) {
    SCOPED_TRACE(every);
    WorkerWorld::Options options = four_stages();
    options.checkpoint_every = every;
    options.checkpoint_keep = 100;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_EQ(world.storage_notes(0).failed, 0);
    EXPECT_EQ(world.storage_notes(0).saved, (kSteps + every - 1) / every);
    EXPECT_EQ(std::ssize(world.checkpoint_folders()), (kSteps + every - 1) / every);
  }
}

TEST(PipeDreamWorkers, AreKilledAndGoOnWithTheSameBits) {
  WorkerWorld undisturbed(four_stages());
  ASSERT_NO_FATAL_FAILURE(undisturbed.run());
  const Ended expected = result_of(undisturbed);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  for (int64_t victim = 0; victim < kStages; ++victim) {
    SCOPED_TRACE(victim);
    WorkerWorld world(four_stages());
    ASSERT_NO_FATAL_FAILURE(world.start());
    world.wait_until(victim,
                     [&](const ProgressNumbers& numbers) { return numbers.step >= 7 + victim; });
    world.kill(victim, SIGKILL);
    world.wait();
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_EQ(result_of(world), expected);
  }
}

TEST(PipeDreamWorkers, AllSaveTheSameStepWhenOneIsToldToStop) {
  for (int64_t victim = 0; victim < kStages; ++victim) {
    SCOPED_TRACE(victim);
    WorkerWorld::Options options = four_stages();
    options.train.steps = 100'000;
    options.checkpoint_every = 11;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.start());
    world.wait_until(victim, [](const ProgressNumbers& numbers) { return numbers.step >= 12; });
    world.kill(victim, SIGTERM);
    EXPECT_EQ(world.wait(), std::vector<int>(kStages, kExitStopped)) << world.log(victim);
    for (int64_t rank = 0; rank < kStages; ++rank) {
      EXPECT_EQ(world.progress(rank).step, world.progress(0).step);
    }
    EXPECT_EQ(world.progress(0).checkpoint_step, world.progress(0).step);
  }
}

// A recording ends in the middle of what overlaps, and changes nothing.
TEST(PipeDreamWorkers, RecordTheMicroBatchesOfLaterSteps) {
  WorkerWorld::Options options = four_stages();
  WorkerWorld plain(options);
  ASSERT_NO_FATAL_FAILURE(plain.run());
  options.train.timeline = {.everySteps = 10, .steps = 2};
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(result_of(world), result_of(plain));
  const auto timeline_of = [&](int64_t rank) {
    return parse_timeline(
               read_file(world.checkpoints() + "/timeline/" + timeline_file_name(10, rank)))
        .value();
  };
  // Step 10 begins after a checkpoint at step 9, and the next one is at step 12.
  std::set<int64_t> forwards, versions;
  for (const TimelineRecord& record : timeline_of(0).records) {
    if (record.step != 10 || record.action != ActionKind::kForward) continue;
    forwards.insert(record.micro_batch);
    versions.insert(record.version);
  }
  EXPECT_EQ(forwards, (std::set<int64_t>{0, 1, 2, 3, 4})) << "two of steps 10 and 11, one of 12";
  EXPECT_EQ(versions, (std::set<int64_t>{9}));
  int64_t updates = 0;
  for (const TimelineRecord& record : timeline_of(3).records) {
    updates += record.action == ActionKind::kUpdate && record.step == 10 ? 1 : 0;
  }
  EXPECT_GE(updates, 1);
}

}  // namespace
}  // namespace lockstep::train
