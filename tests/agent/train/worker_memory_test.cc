// Real workers resume from states in memory after one of them was killed, in any layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

constexpr int64_t kSteps = 24;

WorkerWorld::Options four_ranks() {
  WorkerWorld::Options options{.nodes = 2, .per_node = 2};
  options.train.model = {.layers = 4, .width = 16, .heads = 2, .context = 16};
  options.train.data = {.validationFraction = 0.05};
  options.train.steps = kSteps;
  options.train.batch = {.global = 8, .micro = 1};
  options.train.optimizer = {.learningRate = 5e-3, .warmupSteps = 5};
  options.train.validation = {.everySteps = 10};
  options.memory_every = 1;
  return options;
}

struct Layout {
  const char* name;
  std::function<void(WorkerWorld::Options&, TrainingJobSpec&)> change;
};

WorkerWorld::Options with(const Layout& layout) {
  WorkerWorld::Options options = four_ranks();
  TrainingJobSpec spec;
  spec.train = options.train;
  layout.change(options, spec);
  options.train = *spec.train;
  options.pipeline = spec.parallelism.pipeline;
  options.schedule = spec.parallelism.pipelineSchedule;
  const ParallelismSpec parallelism = spec.parallelism;
  options.change_spec = [parallelism](TrainingJobSpec& made) { made.parallelism = parallelism; };
  return options;
}

struct Ended {
  std::vector<double> losses;
  std::string model;
  std::string optimizer;

  bool operator==(const Ended&) const = default;
};

Ended result_of(const WorkerWorld& world) {
  return {world.metric("loss"), world.checkpoint_bytes(kSteps, "model"),
          world.checkpoint_bytes(kSteps, "optimizer")};
}

class MemoryWorkersTest : public testing::TestWithParam<Layout> {
 protected:
  // Kills a rank at a step, or just after it, and then all others. Their node's memory is lost if
  // `loses_node`. Starts the next round, and expects that it resumes from memory.
  static void kill_and_resume(WorkerWorld& world, int64_t victim, int64_t step, bool loses_node) {
    ASSERT_NO_FATAL_FAILURE(world.start());
    world.wait_until(victim, [&](const ProgressNumbers& numbers) {
      return numbers.phase == WorkerPhase::kTraining && numbers.step >= step;
    });
    world.kill(victim, SIGKILL);
    world.wait();
    int64_t furthest = 0;
    for (int64_t rank = 0; rank < world.size(); ++rank) {
      furthest = std::max(furthest, world.progress(rank).step.value_or(0));
      if (loses_node && rank / 2 == victim / 2) world.lose_memory(rank);
    }
    ASSERT_NO_FATAL_FAILURE(world.start());
    for (const int64_t rank : {int64_t{0}, victim}) {
      world.wait_until(rank, [](const ProgressNumbers& numbers) {
        return numbers.phase >= WorkerPhase::kTraining;
      });
    }
    const StorageNotes notes = world.storage_notes(0);
    EXPECT_EQ(notes.from_memory, 1) << world.log(0);
    EXPECT_GE(notes.resumed_step, furthest - with(GetParam()).memory_every);
    EXPECT_LE(notes.resumed_step, furthest);
    for (int64_t rank = 0; rank < world.size(); ++rank) world.kill(rank, SIGKILL);
    world.wait();
  }

  static Ended undisturbed() {
    WorkerWorld world(with(GetParam()));
    world.run();
    EXPECT_NE(world.log(0).find("states in memory"), std::string::npos) << world.log(0);
    return result_of(world);
  }
};

// With a state of every step at most one step is lost.
TEST_P(MemoryWorkersTest, LoseAtMostWhatWasNotKeptAndEndWithTheSameBits) {
  const Ended expected = undisturbed();
  WorkerWorld world(with(GetParam()));
  for (int64_t victim = 0; victim < world.size(); ++victim) {
    SCOPED_TRACE(victim);
    ASSERT_NO_FATAL_FAILURE(kill_and_resume(world, victim, 4 + 4 * victim, false));
  }
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).from_memory, 1);
  EXPECT_EQ(result_of(world), expected);
}

TEST_P(MemoryWorkersTest, WithCopiesLoseNoMoreIfANodeIsLost) {
  const Ended expected = undisturbed();
  WorkerWorld::Options options = with(GetParam());
  options.memory_copies = 1;
  WorkerWorld world(options);
  for (const int64_t victim : {3, 0}) {
    SCOPED_TRACE(victim);
    ASSERT_NO_FATAL_FAILURE(kill_and_resume(world, victim, 16 - 3 * victim, true));
    EXPECT_NE(world.log(victim).find("received a state that another node kept"), std::string::npos)
        << world.log(victim);
  }
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).from_memory, 1);
  EXPECT_EQ(result_of(world), expected);
}

// Nodes are lost, never two neighbours, and return. The losses are those of the steady world.
struct ElasticLayout {
  const char* name;
  std::function<void(TrainingJobSpec&)> change;
  int64_t micro = 0;
};

class ElasticWorkersTest : public testing::TestWithParam<ElasticLayout> {
 protected:
  // Returns how many values of the state the rank has received when it resumed in another world.
  static size_t received_values(const WorkerWorld& world, int64_t rank) {
    const std::string log = world.log(rank);
    const size_t line = log.rfind("received the shares of another world");
    EXPECT_NE(line, std::string::npos) << log;
    const size_t number = log.find("values=", std::min(line, log.size()));
    EXPECT_NE(number, std::string::npos) << log;
    return number == std::string::npos ? 0 : std::stoull(log.substr(number + 7));
  }

  // Three ranks resume from the shares of four. Each needs a third of the state, from two shares;
  // one of them, or a copy of it, is mostly its own.
  static void expect_only_what_is_held(const WorkerWorld& world, size_t state_values) {
    size_t all = 0;
    for (int64_t rank = 0; rank < world.size(); ++rank) {
      const size_t received = received_values(world, rank);
      EXPECT_LT(received, state_values * 6 / 10) << "rank " << rank;
      all += received;
    }
    EXPECT_GT(all, state_values / 10);
  }
};

TEST_P(ElasticWorkersTest, ResumeFromTheMemoryOfAnotherWorld) {
  WorkerWorld::Options options = four_ranks();
  options.nodes = 4;
  options.per_node = 1;
  options.memory_copies = 1;
  options.train.batch = {.global = 16, .micro = GetParam().micro};
  options.train.validation = {};
  TrainingJobSpec spec;
  GetParam().change(spec);
  const ParallelismSpec parallelism = spec.parallelism;
  options.pipeline = parallelism.pipeline;
  options.change_spec = [parallelism](TrainingJobSpec& made) { made.parallelism = parallelism; };
  WorkerWorld steady(options);
  ASSERT_NO_FATAL_FAILURE(steady.run());
  const size_t state_values = (steady.checkpoint_bytes(kSteps, "model").size() +
                               steady.checkpoint_bytes(kSteps, "optimizer").size()) /
                              sizeof(float);

  WorkerWorld world(options);
  const std::vector<std::vector<int64_t>> changes =
      parallelism.pipeline > 1 ? std::vector<std::vector<int64_t>>{{0, 2}, {1, 0, -1, -1}}
                               : std::vector<std::vector<int64_t>>{
                                     {0, 2, 3}, {0, 1, 2, -1}, {1, 3}, {1}, {0, -1, -1, -1}};
  int64_t step = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    step += 4;
    ASSERT_NO_FATAL_FAILURE(world.start());
    world.wait_until(0, [&](const ProgressNumbers& numbers) {
      return numbers.phase == WorkerPhase::kTraining && numbers.step >= step;
    });
    EXPECT_EQ(world.storage_notes(0).from_memory, i > 0 ? 1 : 0) << world.log(0);
    EXPECT_GE(world.storage_notes(0).resumed_step, i > 0 ? step - 5 : 0);
    world.kill(world.size() - 1, SIGKILL);
    world.wait();
    if (i == 1 && parallelism.sharding == "parameters") {
      expect_only_what_is_held(world, state_values);
    }
    world.change_nodes(changes[i]);
  }
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).from_memory, 1);
  const std::vector<double> expected = steady.metric("loss");
  const std::vector<double> losses = world.metric("loss");
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], expected[i], 1e-5 * expected[i]) << "step " << i + 1;
  }
}

const ElasticLayout kElasticLayouts[] = {
    {"Replicated", [](TrainingJobSpec&) {}},
    {"Accumulating", [](TrainingJobSpec&) {}, 2},
    {"Zero1", [](TrainingJobSpec& spec) { spec.parallelism.sharding = "optimizer"; }},
    {"Zero2", [](TrainingJobSpec& spec) { spec.parallelism.sharding = "gradients"; }, 3},
    {"Zero3", [](TrainingJobSpec& spec) { spec.parallelism.sharding = "parameters"; }, 2},
    {"FirstRank", [](TrainingJobSpec& spec) { spec.parallelism.exchange = "firstRank"; }},
    {"Pipeline2Zero1",
     [](TrainingJobSpec& spec) {
       spec.parallelism.pipeline = 2;
       spec.parallelism.sharding = "optimizer";
     }},
    {"Pipeline2Uneven", [](TrainingJobSpec& spec) { spec.parallelism.pipeline = 2; }, 3},
};

INSTANTIATE_TEST_SUITE_P(Layouts, ElasticWorkersTest, testing::ValuesIn(kElasticLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

const Layout kLayouts[] = {
    {"Replicated", [](auto&, auto&) {}},
    {"Zero1", [](auto&, auto& spec) { spec.parallelism.sharding = "optimizer"; }},
    {"Zero3", [](auto&, auto& spec) { spec.parallelism.sharding = "parameters"; }},
    {"Tensor2", [](auto&, auto& spec) { spec.parallelism.tensor = 2; }},
    {"Pipeline4Bf16Accumulating",
     [](auto&, auto& spec) {
       spec.parallelism.pipeline = 4;
       spec.train->precision = "bf16";
     }},
    {"Zero2Offloaded",
     [](auto&, auto& spec) {
       spec.parallelism.sharding = "gradients";
       spec.parallelism.offload = "optimizer";
     }},
    {"FirstRank", [](auto&, auto& spec) { spec.parallelism.exchange = "firstRank"; }},
    {"PipeDream",
     [](auto& options, auto& spec) {
       options.memory_every = 3;
       spec.parallelism.pipeline = 4;
       spec.parallelism.pipelineSchedule = "pipedream";
       spec.train->model.head = "untied";
       spec.train->optimizer.clipNorm = 0;
     }},
};

INSTANTIATE_TEST_SUITE_P(Layouts, MemoryWorkersTest, testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

void kill_after(WorkerWorld& world, int64_t step) {
  ASSERT_NO_FATAL_FAILURE(world.start());
  world.wait_until(0, [&](const ProgressNumbers& numbers) { return numbers.step >= step; });
  world.kill(1, SIGKILL);
  world.wait();
}

TEST(MemoryWorkers, ResumeFromStorageIfARankLostItsMemory) {
  WorkerWorld::Options options = four_ranks();
  options.checkpoint_every = 5;
  WorkerWorld undisturbed(options);
  ASSERT_NO_FATAL_FAILURE(undisturbed.run());
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(kill_after(world, 13));
  world.lose_memory(2);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).from_memory, 0);
  EXPECT_EQ(world.storage_notes(0).resumed_step % 5, 0);
  EXPECT_EQ(result_of(world), result_of(undisturbed));
}

TEST(MemoryWorkers, StartOverWithoutStorageIfARankLostItsMemory) {
  WorkerWorld::Options options = four_ranks();
  options.stores = false;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(kill_after(world, 6));
  ASSERT_NO_FATAL_FAILURE(kill_after(world, 12));
  EXPECT_EQ(world.storage_notes(0).from_memory, 1);
  EXPECT_GE(world.storage_notes(0).resumed_step, 5);
  world.lose_memory(3);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).from_memory, 0);
  EXPECT_EQ(world.storage_notes(0).resumed_step, 0);
}

// The checkpoint that was due when the rank was killed may not have been complete.
TEST(MemoryWorkers, SaveTheCheckpointThatIsMissing) {
  WorkerWorld::Options options = four_ranks();
  options.checkpoint_every = 8;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::string expected = world.checkpoint_bytes(kSteps, "");
  ASSERT_FALSE(expected.empty());
  std::filesystem::remove_all(world.checkpoint_folder(kSteps));
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).from_memory, 1);
  EXPECT_EQ(world.storage_notes(0).resumed_step, kSteps);
  EXPECT_EQ(world.checkpoint_bytes(kSteps, ""), expected);
}

// Memory is newer than the checkpoint that is left.
TEST(MemoryWorkers, ResumeFromMemoryIfTheNewerCheckpointIsCorrupt) {
  WorkerWorld::Options options = four_ranks();
  options.checkpoint_every = 8;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(kill_after(world, 20));
  const int64_t reached = world.progress(0).step.value_or(0);
  const std::vector<std::string> folders = world.checkpoint_folders();
  ASSERT_FALSE(folders.empty());
  std::filesystem::rename(folders.back(), world.checkpoint_folder(1000));
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).set_aside, 1);
  EXPECT_EQ(world.storage_notes(0).from_memory, 1) << world.log(0);
  EXPECT_GE(world.storage_notes(0).resumed_step, reached - 1);
}

TEST(MemoryWorkers, TrainWithoutItIfARankHasNoMemory) {
  WorkerWorld::Options options = four_ranks();
  options.change = [](WorkerConfig& config) {
    if (config.rank == 2) config.state_fd = -1;
  };
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.log(0).find("keeping no states in memory"), std::string::npos) << world.log(0);
}

// Somebody may have gone back to an older checkpoint with other settings.
TEST(MemoryWorkers, IgnoreStatesOfOtherSettings) {
  WorkerWorld::Options options = four_ranks();
  options.stores = false;
  bool is_changed = false;
  options.change = [&](WorkerConfig& config) {
    if (is_changed) config.train.data.seed += 1;
  };
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(kill_after(world, 6));
  is_changed = true;
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).from_memory, 0);
  EXPECT_EQ(world.storage_notes(0).resumed_step, 0);
}

}  // namespace
}  // namespace lockstep::train
