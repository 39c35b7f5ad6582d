// How a worker begins: from a checkpoint of the same run, of a run that it must not continue, or
// from the weights in a file.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "agent/train/checkpoint/manifest.h"
#include "agent/train/weights/export_weights.h"
#include "tests/agent/train/small_worker.h"

namespace lockstep::train {
namespace {

// A checkpoint after two steps, from which other jobs begin.
const WorkerWorld& two_steps() {
  static WorkerWorld world([] {
    WorkerWorld::Options options = small_world(1);
    options.train.steps = 2;
    return options;
  }());
  static const bool ran = [] {
    world.run();
    return true;
  }();
  EXPECT_TRUE(ran);
  return world;
}

void begin_with_two_steps(const WorkerWorld& world) {
  std::filesystem::copy(two_steps().checkpoints(), world.checkpoints(),
                        std::filesystem::copy_options::recursive);
}

TEST(Worker, RefusesToGoOnAsAnotherRunAndNamesBothValues) {
  const struct {
    void (*change)(TrainSpec& train);
    const char* words;
  } cases[] = {
      {[](TrainSpec& train) { train.model.width = 48; },
       "spec.train.model.width: 48, but the checkpoint has 32"},
      {[](TrainSpec& train) { train.model.heads = 4; },
       "spec.train.model.heads: 4, but the checkpoint has 2"},
      {[](TrainSpec& train) { train.data.validationFraction = 0.1; },
       "spec.train.data.validationFraction: 0.1, but the checkpoint has 0.05"},
      {[](TrainSpec& train) { train.data.seed = 8; },
       "spec.train.data.seed: 8, but the checkpoint has 3"},
      {[](TrainSpec& train) {
         train.precision = "bf16";
         train.rounding = "stochastic";
       },
       "spec.train.precision: bf16, but the checkpoint has fp32; spec.train.rounding: "
       "stochastic, but the checkpoint has nearest"},
      {[](TrainSpec& train) { train.optimizer.beta2 = 0.99; },
       "spec.train.optimizer.beta2: 0.99, but the checkpoint has 0.95"},
      {[](TrainSpec& train) { train.optimizer = {.name = "adagrad", .learningRate = 5e-3}; },
       "spec.train.optimizer.name: adagrad, but the checkpoint has adamw"},
  };
  for (const auto& c : cases) {
    WorkerWorld::Options options = small_world(1);
    c.change(options.train);
    WorkerWorld world(options);
    begin_with_two_steps(world);
    ASSERT_NO_FATAL_FAILURE(world.start());
    EXPECT_EQ(world.wait(), std::vector<int>{kExitBadConfig});
    EXPECT_NE(world.log(0).find(c.words), std::string::npos) << world.log(0);
    EXPECT_NE(world.log(0).find("/step-00000002 cannot be resumed with other settings"),
              std::string::npos);
  }
}

TEST(Worker, GoesOnWithWhatOnlyTheStepsToComeDependOn) {
  WorkerWorld::Options options = small_world(2);
  TrainSpec& train = options.train;
  train.steps = 4;
  train.seed = 9;  // the parameters come from the checkpoint
  train.batch = {.global = 8, .micro = 4};
  train.recompute = "blocks";
  train.optimizer.learningRate = 1e-3;
  train.optimizer.schedule = "constant";
  train.optimizer.weightDecay = 0;
  train.optimizer.clipNorm = 0;
  WorkerWorld world(options);
  begin_with_two_steps(world);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.log(0).find("resuming from a checkpoint"), std::string::npos) << world.log(0);
  EXPECT_EQ(world.metric("loss").size(), 4u);
}

// Such checkpoints have no settings other than the data seed.
TEST(Worker, ComparesWhatACheckpointOfAnOlderVersionHas) {
  const auto run_with = [](void (*change)(TrainSpec & train)) {
    WorkerWorld::Options options = small_world(1);
    options.train.steps = 3;
    change(options.train);
    WorkerWorld world(options);
    begin_with_two_steps(world);
    const std::string path = world.checkpoints() + "/step-00000002/manifest.json";
    Manifest manifest = parse_manifest(read_file(path)).value();
    EXPECT_FALSE(manifest.settings.empty());
    manifest.settings.clear();
    std::ofstream(path, std::ios::binary) << format_manifest(manifest);
    world.start();
    const int exit_code = world.wait().front();
    return std::pair(exit_code, world.log(0));
  };
  EXPECT_EQ(run_with([](TrainSpec& train) { train.optimizer.beta2 = 0.99; }).first, 0);
  const auto order = run_with([](TrainSpec& train) { train.data.seed = 8; });
  EXPECT_EQ(order.first, kExitBadConfig);
  EXPECT_NE(order.second.find("spec.train.data.seed: 8, but the checkpoint has 3"),
            std::string::npos)
      << order.second;
  const auto model = run_with([](TrainSpec& train) { train.model.width = 48; });
  EXPECT_EQ(model.first, kExitBadConfig);
  EXPECT_NE(model.second.find("belongs to another model"), std::string::npos) << model.second;
}

// The rounding of the bf16 copies: a continued run redraws those of the last update.
TEST(Worker, RoundingStochasticallyGoesOnToTheSameBits) {
  const auto options = [](int64_t nodes, const char* rounding) {
    WorkerWorld::Options of = small_world(nodes);
    of.train.precision = "bf16";
    of.train.rounding = rounding;
    of.train.steps = 12;
    of.train.validation = {};
    of.checkpoint_every = 5;
    return of;
  };
  WorkerWorld whole(options(2, "stochastic"));
  ASSERT_NO_FATAL_FAILURE(whole.run());
  WorkerWorld stopped(options(2, "stochastic"));
  ASSERT_NO_FATAL_FAILURE(stopped.run());
  std::filesystem::remove_all(stopped.checkpoints() + "/step-00000012");
  std::filesystem::remove_all(stopped.checkpoints() + "/step-00000010");
  ASSERT_NO_FATAL_FAILURE(stopped.run());
  EXPECT_NE(stopped.log(0).find("/step-00000005"), std::string::npos) << stopped.log(0);
  for (const char* file : {"model", "optimizer"}) {
    EXPECT_TRUE(whole.checkpoint_bytes(12, file) == stopped.checkpoint_bytes(12, file)) << file;
  }
  WorkerWorld nearest(options(2, "nearest"));
  ASSERT_NO_FATAL_FAILURE(nearest.run());
  const bool has_bf16 = whole.log(0).find("precision=bf16") != std::string::npos;
  EXPECT_EQ(whole.metric("loss") != nearest.metric("loss"), has_bf16) << whole.log(0);
  const std::vector<double> losses = whole.metric("loss");
  EXPECT_NEAR(losses.back(), nearest.metric("loss").back(), 0.02 * losses.back());

  WorkerWorld::Options reseeded = options(1, "stochastic");
  reseeded.train.seed = 9;
  WorkerWorld other(reseeded);
  std::filesystem::copy(whole.checkpoints(), other.checkpoints(),
                        std::filesystem::copy_options::recursive);
  ASSERT_NO_FATAL_FAILURE(other.start());
  EXPECT_EQ(other.wait(), std::vector<int>{kExitBadConfig});
  EXPECT_NE(other.log(0).find("spec.train.seed: 9, but the checkpoint has 1"), std::string::npos)
      << other.log(0);
}

TEST(Worker, GoesOnToTheSameBitsWithEveryOptimizer) {
  expect_same_bits_with_every_optimizer(small_world(2));
}

// Every rank draws its parameters, so one that has another seed differs. With sharding it may draw
// few of them, or gets them all from others.
TEST(Worker, NamesTheRankThatDrawsOtherParameters) {
  for (const std::string sharding : {"none", "optimizer", "gradients", "parameters"}) {
    SCOPED_TRACE(sharding);
    WorkerWorld::Options options = small_world(2, 2);
    options.train.steps = 1;
    options.last_seed = 9;
    options.change = [&](WorkerConfig& config) {
      config.world.layout.sharding = sharding;
      config.hash = world_hash(config.world);
    };
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.start());
    EXPECT_EQ(world.wait(), (std::vector<int>{kExitPeerLost, kExitPeerLost, kExitPeerLost, 1}));
    for (int64_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_NE(world.log(rank).find("rank 3 drew others"), std::string::npos) << world.log(rank);
    }
  }
}

// The ranks compare what they have drawn.
TEST(Worker, DrawsTheSameParametersOnEveryInstructionSet) {
  WorkerWorld::Options options = small_world(2);
  options.train.steps = 1;
  options.max_cpu_isa = "baseline";
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
}

TEST(Worker, TakesTheParametersOfACheckpointWhateverItsSeed) {
  WorkerWorld::Options options = small_world(2);
  options.train.steps = 4;
  WorkerWorld same(options);
  begin_with_two_steps(same);
  ASSERT_NO_FATAL_FAILURE(same.run());
  options.last_seed = 9;
  WorkerWorld other(options);
  begin_with_two_steps(other);
  ASSERT_NO_FATAL_FAILURE(other.run());
  EXPECT_FALSE(same.checkpoint_bytes(4, "model").empty());
  EXPECT_TRUE(same.checkpoint_bytes(4, "model") == other.checkpoint_bytes(4, "model"));
}

// Starts with weights exported from two undisturbed processes. Training with a negligible learning
// rate does not change them. The other rank gets them from rank 0.
TEST(Worker, BeginsWithTheWeightsOfAFileUntilThereIsACheckpoint) {
  TemporaryFolder folder;
  WorkerWorld::Options options = small_world(2);
  std::string& file = options.train.model.weights.path;
  file = folder.file("weights.safetensors");
  ASSERT_TRUE(export_weights(undisturbed().checkpoints(), file).ok());
  options.train.steps = 1;
  options.train.optimizer.learningRate = 1e-60;
  options.last_seed = 9;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.log(0).find("starting from weights"), std::string::npos) << world.log(0);
  EXPECT_EQ(world.metric("validationLoss").back(), undisturbed().metric("validationLoss").back());
  EXPECT_TRUE(world.checkpoint_bytes(1, "model") ==
              undisturbed().checkpoint_bytes(kSmallSteps, "model"));
  // The checkpoint takes precedence over the file, which is no longer needed.
  std::filesystem::remove(file);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.log(0).find("resuming from a checkpoint"), std::string::npos) << world.log(0);
}

TEST(Worker, NamesWeightsThatAreMissingOrAnotherModels) {
  TemporaryFolder folder;
  const std::string file = folder.file("weights.safetensors");
  ASSERT_TRUE(export_weights(undisturbed().checkpoints(), file).ok());
  const struct {
    std::string path;
    int64_t layers;
    int exit_code;
    std::string words;
  } cases[] = {
      {folder.file("nowhere"), 2, kExitDataError, folder.file("nowhere")},
      {file, 3, kExitBadConfig, file + ": spec.train.model.layers: 3, the file has 2"},
  };
  for (const auto& c : cases) {
    WorkerWorld::Options options = small_world(1);
    options.train.model.layers = c.layers;
    options.train.model.weights.path = c.path;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.start());
    EXPECT_EQ(world.wait(), std::vector<int>{c.exit_code});
    EXPECT_NE(world.log(0).find("spec.train.model.weights.path: "), std::string::npos);
    EXPECT_NE(world.log(0).find(c.words), std::string::npos) << world.log(0);
  }
}

}  // namespace
}  // namespace lockstep::train
