#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "agent/train/checkpoint/manifest.h"
#include "agent/train/checkpoint/tensor_file.h"
#include "agent/train/weights/export_weights.h"
#include "common/api/hang_limit.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep {
namespace {

constexpr int64_t kSteps = 60;

TrainSpec small_training() {
  TrainSpec train;
  train.model = {.layers = 2, .width = 32, .heads = 2, .context = 32};
  train.data = {.validationFraction = 0.05, .seed = 3};
  train.steps = kSteps;
  train.batch = {.global = 16, .micro = 2};
  // With an epsilon above the rounding of gradients, so that Adam does not blow rounding up.
  train.optimizer = {.learningRate = 5e-3, .warmupSteps = 5, .epsilon = 1e-5, .clipNorm = 0.5};
  train.bucketBytes = 32 << 10;
  train.validation = {.everySteps = 20};
  train.sample = {.tokens = 20, .prompt = "and "};
  return train;
}

WorkerWorld::Options small_world(int64_t nodes, int64_t per_node = 1) {
  return {.nodes = nodes, .per_node = per_node, .train = small_training(), .checkpoint_every = 25};
}

// Of the last checkpoint, by name.
std::map<std::string, std::vector<float>> final_parameters(const WorkerWorld& world) {
  std::map<std::string, std::vector<float>> parameters;
  const auto file = TensorFile::open(world.checkpoints() + "/step-00000060/model.safetensors");
  EXPECT_TRUE(file.ok());
  if (!file.ok()) return parameters;
  for (const TensorInfo& tensor : file->header().tensors) {
    std::vector<float>& values = parameters[tensor.name];
    values.resize((tensor.end - tensor.begin) / sizeof(float));
    const TensorPiece piece{values.data(), 0, static_cast<int64_t>(values.size())};
    EXPECT_TRUE(file->read(tensor.name, tensor.shape, {&piece, 1}).ok());
  }
  return parameters;
}

// The norm of the difference by the norm of the first.
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

// The key's part of the attention's bias has no gradient but rounding, which Adam blows up: it is
// left out.
std::vector<float> without_key_bias(const std::string& name, std::vector<float> values) {
  if (!name.ends_with("attn.c_attn.bias")) return values;
  const auto third = static_cast<std::ptrdiff_t>(values.size() / 3);
  values.erase(values.begin() + third, values.begin() + 2 * third);
  return values;
}

void expect_same_end(const WorkerWorld& a, const WorkerWorld& b) {
  EXPECT_EQ(a.metric("loss"), b.metric("loss"));
  EXPECT_EQ(a.metric("validationLoss"), b.metric("validationLoss"));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(a.checkpoint_file(kSteps, file) == b.checkpoint_file(kSteps, file)) << file;
  }
  EXPECT_EQ(read_file(a.checkpoints() + "/sample.txt"), read_file(b.checkpoints() + "/sample.txt"));
}

// What two processes reach without being disturbed, once for all tests.
const WorkerWorld& undisturbed() {
  static WorkerWorld world(small_world(2));
  static const bool ran = [] {
    world.run();
    return true;
  }();
  EXPECT_TRUE(ran);
  return world;
}

TEST(Worker, LearnsTheSameOnOneTwoAndFourProcesses) {
  WorkerWorld one(small_world(1));
  ASSERT_NO_FATAL_FAILURE(one.run());
  WorkerWorld four(small_world(2, 2));
  ASSERT_NO_FATAL_FAILURE(four.run());
  const WorkerWorld& two = undisturbed();

  const std::vector<double> losses = one.metric("loss");
  ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
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
  EXPECT_EQ(numbers.step, kSteps);
  EXPECT_EQ(numbers.samples, kSteps * 16);
  EXPECT_EQ(numbers.tokens, kSteps * 16 * 32);
  EXPECT_EQ(numbers.loss, undisturbed().metric("loss").back());
  EXPECT_EQ(numbers.validation_loss, undisturbed().metric("validationLoss").back());
  EXPECT_EQ(numbers.checkpoint_step, kSteps);
  EXPECT_EQ(numbers.suspect_rank, -1);
  EXPECT_GT(numbers.tokens_per_second, 0);
  EXPECT_GT(numbers.first_step_unix_seconds, 0);
  // 6N + 12LCT and 6N + 6LCT differ by 6LCT.
  const double per_token = numbers.palm_flops_per_second / numbers.tokens_per_second;
  EXPECT_NEAR(per_token - numbers.causal_flops_per_second / numbers.tokens_per_second,
              6.0 * 2 * 32 * 32, 1e-3);
  EXPECT_EQ(numbers.datasheet_flops_per_second, 0) << "on the CPU";
  EXPECT_LE(numbers.data_seconds + numbers.forward_seconds + numbers.backward_seconds +
                numbers.communication_seconds + numbers.update_seconds,
            numbers.step_seconds * 1.001);
}

TEST(Worker, WritesTheSampleThatThePromptBegins) {
  const std::string sample = read_file(undisturbed().checkpoints() + "/sample.txt");
  EXPECT_EQ(sample.substr(0, 4), "and ");
  EXPECT_EQ(sample.size(), 4u + 20u + 1u);
}

// A rank is killed when it has come to a phase (or just past it); the next round ends as if nothing
// had happened.
class KilledWorkerTest : public testing::TestWithParam<WorkerPhase> {};

TEST_P(KilledWorkerTest, TheNextRoundEndsWithTheSameBits) {
  const WorkerPhase phase = GetParam();
  for (const int64_t victim : {0, 1}) {
    WorkerWorld world(small_world(2));
    ASSERT_NO_FATAL_FAILURE(world.start());
    const bool late = phase != WorkerPhase::kForming && phase != WorkerPhase::kBroadcasting;
    world.wait_until(0, [&](const ProgressNumbers& numbers) {
      return numbers.phase >= phase && (!late || numbers.step >= 30);
    });
    world.kill(victim, SIGKILL);
    // Who waits for a rank that never came is ended by its agent, when the next round is assigned.
    const bool alone = phase == WorkerPhase::kForming;
    if (alone) world.kill(1 - victim, SIGKILL);
    const std::vector<int> codes = world.wait();
    // In the last phase the other rank may be done.
    const int other = codes[static_cast<size_t>(1 - victim)];
    EXPECT_TRUE(other == kExitPeerLost || other == 0 || alone) << other << "\n"
                                                               << world.log(1 - victim);
    if (other == kExitPeerLost && world.progress(1 - victim).phase >= WorkerPhase::kBroadcasting) {
      EXPECT_EQ(world.progress(1 - victim).suspect_rank, victim);
    }
    ASSERT_NO_FATAL_FAILURE(world.run());
    expect_same_end(undisturbed(), world);
    EXPECT_EQ(world.progress(0).loss, undisturbed().progress(0).loss);
    EXPECT_EQ(world.progress(0).validation_loss, undisturbed().progress(0).validation_loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Phases, KilledWorkerTest,
                         testing::Values(WorkerPhase::kForming, WorkerPhase::kBroadcasting,
                                         WorkerPhase::kTraining, WorkerPhase::kSaving,
                                         WorkerPhase::kValidating, WorkerPhase::kFinishing),
                         [](const auto& info) {
                           return std::string(worker_phase_name(info.param));
                         });

TEST(Worker, FallsBackToTheCheckpointBeforeABrokenOne) {
  WorkerWorld world(small_world(2));
  ASSERT_NO_FATAL_FAILURE(world.run());
  std::filesystem::resize_file(world.checkpoints() + "/step-00000060/model.safetensors", 1000);
  std::filesystem::remove(world.checkpoints() + "/step-00000050/manifest.json");
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.log(0).find("checkpoint passed over"), std::string::npos);
  EXPECT_NE(world.log(0).find("/step-00000025"), std::string::npos) << world.log(0);
  expect_same_end(undisturbed(), world);
}

TEST(Worker, SavesAndLeavesOnSigtermAndGoesOnLater) {
  WorkerWorld world(small_world(2));
  ASSERT_NO_FATAL_FAILURE(world.start());
  world.wait_until(1, [](const ProgressNumbers& numbers) { return numbers.step >= 3; });
  world.kill(1, SIGTERM);  // one is enough: they agree
  EXPECT_EQ(world.wait(), (std::vector<int>{kExitStopped, kExitStopped}));
  const int64_t step = world.progress(0).step;
  EXPECT_GE(step, 3);
  EXPECT_LT(step, kSteps);
  EXPECT_EQ(world.progress(1).step, step);
  EXPECT_EQ(world.progress(0).checkpoint_step, step);
  ASSERT_NO_FATAL_FAILURE(world.run());
  expect_same_end(undisturbed(), world);
}

TEST(Worker, ARankThatStandsStillIsNamedWithTheCollectiveThatItMisses) {
  for (const int64_t victim : {0, 1}) {
    WorkerWorld::Options options = small_world(2);
    options.hang_seconds = 1;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.start());
    world.wait_until(victim, [](const ProgressNumbers& numbers) { return numbers.step >= 5; });
    world.kill(victim, SIGSTOP);
    const int64_t other = 1 - victim;
    world.wait_until(other,
                     [](const ProgressNumbers& numbers) { return numbers.suspect_rank >= 0; });
    EXPECT_EQ(world.progress(other).suspect_rank, victim) << world.log(other);
    world.kill(victim, SIGKILL);
    const std::vector<int> codes = world.wait();
    EXPECT_EQ(codes[static_cast<size_t>(other)], kExitPeerHung) << world.log(other);
    const std::string log = world.log(other);
    EXPECT_NE(log.find(": rank " + std::to_string(victim) + " silent for "), std::string::npos)
        << log;
    EXPECT_NE(log.find("[comm] all_"), std::string::npos) << log;
    ASSERT_NO_FATAL_FAILURE(world.run());
    expect_same_end(undisturbed(), world);
  }
}

TEST(Worker, AMachineThatStoodStillAsAWholeIsNoHang) {
  WorkerWorld::Options options = small_world(2);
  options.hang_seconds = 3;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  world.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.step >= 5; });
  const auto let_pass = [&world](std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    world.wait_until(0, [until](const auto&) { return std::chrono::steady_clock::now() >= until; });
  };
  world.kill(0, SIGSTOP);
  let_pass(std::chrono::milliseconds(300));  // rank 1 waits for it
  world.kill(1, SIGSTOP);
  let_pass(std::chrono::seconds(7));
  for (const int64_t rank : {0, 1}) world.kill(rank, SIGCONT);
  EXPECT_EQ(world.wait(), (std::vector<int>{0, 0})) << world.log(1);
  expect_same_end(undisturbed(), world);
}

TEST(HangLimit, IsFiveMedianStepsButNotBelowTheFloor) {
  using std::chrono::seconds;
  HangLimit limit(seconds(20), seconds(600));
  EXPECT_EQ(limit.of_next_step(), seconds(600)) << "nothing is known of the steps yet";
  for (int i = 0; i < 3; ++i) limit.add_step(seconds(1));
  EXPECT_EQ(limit.of_next_step(), seconds(20));
  for (int i = 0; i < 6; ++i) limit.add_step(seconds(8));
  EXPECT_EQ(limit.of_next_step(), seconds(40));
  limit.add_step(seconds(300));
  EXPECT_EQ(limit.of_next_step(), seconds(40)) << "a median";
  limit.note_pause();
  EXPECT_EQ(limit.of_next_step(), seconds(600));
  limit.add_step(seconds(8));
  EXPECT_EQ(limit.of_next_step(), seconds(40));
  for (int i = 0; i < 30; ++i) limit.add_step(seconds(1));
  EXPECT_EQ(limit.of_next_step(), seconds(20)) << "the last steps alone";
  for (int i = 0; i < 15; ++i) limit.add_step(seconds(500));
  EXPECT_EQ(limit.of_next_step(), seconds(600));
}

TEST(Worker, StopsWhenTheLossIsNotFinite) {
  WorkerWorld::Options options = small_world(2);
  options.train.optimizer = {
      .learningRate = 100, .schedule = "constant", .weightDecay = 10, .clipNorm = 0};
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  // A rank may see the other one leave before it has looked at the loss itself.
  const std::vector<int> codes = world.wait();
  EXPECT_EQ(std::ranges::count(codes, kExitNotFinite) + std::ranges::count(codes, kExitPeerLost), 2)
      << world.log(0);
  EXPECT_GE(std::ranges::count(codes, kExitNotFinite), 1) << world.log(0);
}

TEST(Worker, EndsWithWordsWhereTheGpuOfItsJobIsNot) {
  WorkerWorld::Options options = small_world(1);
  options.gpu = 63;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.start());
  EXPECT_EQ(world.wait(), std::vector<int>{kExitNoDevice}) << world.log(0);
  EXPECT_NE(world.log(0).find("GPU 63, so its process should see at least 64"), std::string::npos)
      << world.log(0);
}

TEST(Worker, NamesDataThatIsMissingOrTooShort) {
  for (const bool missing : {true, false}) {
    WorkerWorld::Options options = small_world(1);
    TemporaryFolder folder;
    options.train.data.path = folder.file("text");
    if (!missing) folder.write("text", "short");
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.start());
    EXPECT_EQ(world.wait(), std::vector<int>{kExitDataError});
    EXPECT_NE(world.log(0).find(folder.file("text")), std::string::npos) << world.log(0);
  }
}

// A checkpoint after two steps, with which other jobs begin.
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
       "spec.train.model.width: 48 is not the 32 of the checkpoint"},
      {[](TrainSpec& train) { train.model.heads = 4; },
       "spec.train.model.heads: 4 is not the 2 of the checkpoint"},
      {[](TrainSpec& train) { train.data.validationFraction = 0.1; },
       "spec.train.data.validationFraction: 0.1 is not the 0.05 of the checkpoint"},
      {[](TrainSpec& train) { train.data.seed = 8; },
       "spec.train.data.seed: 8 is not the 3 of the checkpoint"},
      {[](TrainSpec& train) {
         train.precision = "bf16";
         train.rounding = "stochastic";
       },
       "spec.train.precision: bf16 is not the fp32 of the checkpoint; spec.train.rounding: "
       "stochastic is not the nearest of the checkpoint"},
      {[](TrainSpec& train) { train.optimizer.beta2 = 0.99; },
       "spec.train.optimizer.beta2: 0.99 is not the 0.95 of the checkpoint"},
  };
  for (const auto& c : cases) {
    WorkerWorld::Options options = small_world(1);
    c.change(options.train);
    WorkerWorld world(options);
    begin_with_two_steps(world);
    ASSERT_NO_FATAL_FAILURE(world.start());
    EXPECT_EQ(world.wait(), std::vector<int>{kExitBadConfig});
    EXPECT_NE(world.log(0).find(c.words), std::string::npos) << world.log(0);
    EXPECT_NE(world.log(0).find("/step-00000002, which can't go on otherwise"), std::string::npos);
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

// They have no settings but the seed of the data.
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
  EXPECT_NE(order.second.find("spec.train.data.seed: 8 is not the 3 of the checkpoint"),
            std::string::npos)
      << order.second;
  const auto model = run_with([](TrainSpec& train) { train.model.width = 48; });
  EXPECT_EQ(model.first, kExitBadConfig);
  EXPECT_NE(model.second.find("belongs to another model"), std::string::npos) << model.second;
}

// Of the bf16 copies: those that the last update made are drawn again when training goes on.
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
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(whole.checkpoint_file(12, file) == stopped.checkpoint_file(12, file)) << file;
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
  EXPECT_NE(other.log(0).find("spec.train.seed: 9 is not the 1 of the checkpoint"),
            std::string::npos)
      << other.log(0);
}

// Exported from what two processes reach; training from there at a rate of nothing stays there.
TEST(Worker, BeginsWithTheWeightsOfAFileUntilThereIsACheckpoint) {
  TemporaryFolder folder;
  WorkerWorld::Options options = small_world(2);
  std::string& file = options.train.model.weights.path;
  file = folder.file("weights.safetensors");
  ASSERT_TRUE(export_weights(undisturbed().checkpoints(), file).ok());
  options.train.steps = 1;
  options.train.optimizer.learningRate = 1e-60;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.log(0).find("beginning with weights"), std::string::npos) << world.log(0);
  EXPECT_EQ(world.metric("validationLoss").back(), undisturbed().metric("validationLoss").back());
  EXPECT_TRUE(world.checkpoint_file(1, "model.safetensors") ==
              undisturbed().checkpoint_file(kSteps, "model.safetensors"));
  // The checkpoint goes before the file, which isn't missed.
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

TEST(Worker, PrintsTheSampleAlsoWhereNothingIsStored) {
  WorkerWorld::Options options = small_world(1);
  options.train.steps = 2;
  options.stores = false;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.log(0).find("text=\"and "), std::string::npos) << world.log(0);
  EXPECT_FALSE(std::filesystem::exists(world.checkpoints()));
}

TEST(Worker, TheOthersDoNotWaitForRank0sSample) {
  WorkerWorld::Options options = small_world(2);
  options.train.steps = 2;
  WorkerWorld world(options);
  std::filesystem::create_directories(world.checkpoints() + "/sample.txt");  // can't be written
  ASSERT_NO_FATAL_FAILURE(world.start());
  EXPECT_EQ(world.wait(), (std::vector<int>{kExitStorageError, 0})) << world.log(1);
}

TEST(Worker, ReportsStorageThatCannotBeWritten) {
  WorkerWorld world(small_world(2));
  world.folder().write("checkpoints", "a file where the folder should be");
  ASSERT_NO_FATAL_FAILURE(world.start());
  EXPECT_EQ(world.wait(), (std::vector<int>{kExitStorageError, kExitPeerLost}));
}

}  // namespace
}  // namespace lockstep
