// The training loop on a CUDA device that the CPU plays, beside the loop on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/model/generate.h"
#include "agent/model/init.h"
#include "agent/train/matmul_peak.h"
#include "agent/train/train_step.h"
#include "agent/train/validator.h"
#include "common/base/random.h"
#include "tests/agent/train/temporary_folder.h"
#include "tests/support/emulated_cuda/emulated_device.h"

namespace lockstep {
namespace {

constexpr Device kCuda{DeviceType::kCuda, 0};
constexpr int64_t kContext = 16;
constexpr int64_t kMicro = 2;
constexpr int64_t kSteps = 5;
constexpr int64_t kFewSteps = 2;  // where bits are compared: the device is played slowly
const ModelConfig kConfig{2, 32, 2, kContext, 64};
const ModelConfig kLlama{.layers = 2,
                         .width = 32,
                         .heads = 4,
                         .context = kContext,
                         .vocabulary = 64,
                         .family = Family::kLlama,
                         .hidden = 88,
                         .tied = false,
                         .kv_heads = 2};

struct Setup {
  Device device;
  Precision precision = Precision::kF32;
  Recompute recompute = Recompute::kNone;
  ModelConfig config = kConfig;
};

// Tokens of which each follows from the one before, mostly.
std::string some_text() {
  Random random(5);
  std::string text;
  uint64_t token = 1;
  for (int i = 0; i < 4000; ++i) {
    token = random.below(4) == 0 ? random.below(64) : (token * 5 + 1) % 64;
    text += static_cast<char>(token);
  }
  return text;
}

// A rank alone with all that it trains with, and what came of it.
class Training {
 public:
  explicit Training(const Setup& setup)
      : source_(
            TokenSource::open({folder_.write("data", some_text()), TokenWidth::kByte, 64}).value()),
        split_(split_data(
                   {.tokens = source_.count(), .context = kContext, .validation_fraction = 0.02},
                   "data")
                   .value()),
        model_(Composition::create({.config = setup.config,
                                    .mesh = {},
                                    .micro_batch = kMicro,
                                    .sequence = kContext,
                                    .bucket_bytes = 1 << 20,
                                    .optimizer = {},
                                    .precision = setup.precision,
                                    .recompute = setup.recompute,
                                    .device = setup.device},
                                   *world_.front())
                   .value()),
        loader_(source_, split_, {.shape = kBatch, .seed = 3}) {
    HostState state = model_->state_on_host().value();
    initialise_arena(setup.config, model_->store().arena(), {}, 1, state.parameters);
    EXPECT_TRUE(model_->take_state(state).ok());
    EXPECT_TRUE(model_->broadcast_state(false).ok());
  }

  void train(int64_t steps = kSteps) {
    TrainStep step = TrainStep::create(
                         {.batch = kBatch,
                          .context = kContext,
                          .schedule = {.kind = ScheduleKind::kConstant, .peak = 1e-2, .steps = 100},
                          .clip_norm = 1.0},
                         {*model_, *world_.front(), loader_, reason_, clock_})
                         .value();
    for (int64_t i = 1; i <= steps; ++i) {
      const Result<TrainStep::Outcome> outcome = step.run(i, false);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      losses.push_back(outcome->metrics.loss);
      norms.push_back(outcome->metrics.gradient_norm);
      seconds.push_back(outcome->metrics.seconds);
    }
  }
  double validate() {
    Validator validator =
        Validator::create(split_, kMicro, {*model_, *world_.front(), source_, reason_}).value();
    return validator.run().value().value();
  }
  std::vector<int32_t> write_on() {
    return generate(model_->model(), model_->store(),
                    {.prompt = {1, 6, 31}, .tokens = 12, .temperature = 0.0f})
        .value();
  }
  // Parameters and both moments.
  std::vector<float> state() {
    const HostState state = model_->state_on_host().value();
    const int64_t count = model_->store().arena().count;
    std::vector<float> values;
    for (const float* part : {state.parameters, state.first_moments, state.second_moments}) {
      values.insert(values.end(), part, part + count);
    }
    return values;
  }
  Composition& model() { return *model_; }

  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<StepSeconds> seconds;

 private:
  static constexpr BatchShape kBatch{.micro = kMicro, .accumulation = 3, .data_size = 1};

  TemporaryFolder folder_;
  TokenSource source_;
  DataSplit split_;
  std::vector<std::unique_ptr<Communicator>> world_ = make_thread_world(1).value();
  std::unique_ptr<Composition> model_;
  BatchLoader loader_;
  ExitReason reason_;
  SystemClock clock_;
};

void expect_near(const std::vector<double>& ours, const std::vector<double>& theirs,
                 double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i], theirs[i], tolerance * theirs[i]) << "step " << i + 1;
  }
}

// In fp32 both sum the same products, in other orders.
TEST(EmulatedTraining, InFp32TakesTheStepsOfTheCpu) {
  Training cpu({.device = {}});
  Training cuda({.device = kCuda});
  cpu.train();
  cuda.train();
  EXPECT_LT(cpu.losses.back(), cpu.losses.front() - 0.1) << "nothing was learned";
  expect_near(cuda.losses, cpu.losses, 1e-5);
  expect_near(cuda.norms, cpu.norms, 1e-4);
  EXPECT_NEAR(cuda.validate(), cpu.validate(), 1e-4);
  EXPECT_EQ(cuda.write_on(), cpu.write_on());
}

// 8 bits of fraction in every activation: a percent of the loss.
TEST(EmulatedTraining, InBf16StaysCloseToFp32) {
  Training cpu({.device = {}});
  Training cuda({.device = kCuda, .precision = Precision::kBf16});
  cpu.train();
  cuda.train();
  expect_near(cuda.losses, cpu.losses, 1e-2);
  expect_near(cuda.norms, cpu.norms, 5e-2);
  EXPECT_NEAR(cuda.validate(), cpu.validate(), 2e-2 * cpu.validate());
}

TEST(EmulatedTraining, OfALlamaTakesTheStepsOfTheCpu) {
  Training cpu({.device = {}, .config = kLlama});
  Training cuda({.device = kCuda, .config = kLlama});
  Training half({.device = kCuda, .precision = Precision::kBf16, .config = kLlama});
  for (Training* training : {&cpu, &cuda, &half}) training->train();
  EXPECT_LT(cpu.losses.back(), cpu.losses.front() - 0.1) << "nothing was learned";
  expect_near(cuda.losses, cpu.losses, 1e-5);
  expect_near(cuda.norms, cpu.norms, 1e-4);
  EXPECT_NEAR(cuda.validate(), cpu.validate(), 1e-4);
  EXPECT_EQ(cuda.write_on(), cpu.write_on());
  expect_near(half.losses, cpu.losses, 1e-2);
  expect_near(half.norms, cpu.norms, 5e-2);
}

TEST(EmulatedTraining, IsTheSameBitForBitInWhateverOrderThreadsRun) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    emulated_cuda::set_seed(1);
    Training first({.device = kCuda, .precision = precision});
    first.train(kFewSteps);
    emulated_cuda::set_seed(2);
    Training second({.device = kCuda, .precision = precision});
    second.train(kFewSteps);
    EXPECT_EQ(first.losses, second.losses);
    EXPECT_EQ(first.state(), second.state());
  }
}

// By events on the stream that computes, which are read when the step is over.
TEST(EmulatedTraining, SplitsTheTimeOfAStepByPart) {
  Training cuda({.device = kCuda});
  cuda.train(kFewSteps);
  for (const StepSeconds& step : cuda.seconds) {
    const double parts[] = {step.data, step.forward, step.backward, step.communication,
                            step.update};
    for (const double part : parts) EXPECT_GT(part, 0);
    EXPECT_LE(std::accumulate(std::begin(parts), std::end(parts), 0.0), step.total);
  }
}

TEST(EmulatedTraining, ComputesBlocksAgainToTheSameBits) {
  Training kept({.device = kCuda, .precision = Precision::kBf16});
  Training again({.device = kCuda, .precision = Precision::kBf16, .recompute = Recompute::kBlocks});
  kept.train(kFewSteps);
  again.train(kFewSteps);
  EXPECT_EQ(again.losses, kept.losses);
  EXPECT_EQ(again.state(), kept.state());
}

// What was saved goes on as what was not.
TEST(EmulatedTraining, GoesOnFromWhatTheHostHasSaved) {
  Training run({.device = kCuda});
  run.train(kFewSteps);
  const std::vector<float> saved = run.state();
  Training other({.device = kCuda});
  HostState state = other.model().state_on_host().value();
  const int64_t count = other.model().store().arena().count;
  std::copy_n(saved.data(), count, state.parameters);
  std::copy_n(saved.data() + count, count, state.first_moments);
  std::copy_n(saved.data() + 2 * count, count, state.second_moments);
  ASSERT_TRUE(other.model().take_state(state).ok());
  EXPECT_EQ(other.state(), saved);
  EXPECT_EQ(other.validate(), run.validate());
}

TEST(EmulatedTraining, SaysWhatItAskedForWhereThatDoesNotFit) {
  auto world = make_thread_world(1).value();
  const ModelConfig gpt2 = model_preset("gpt2-124m").value();
  const auto composition = Composition::create({.config = gpt2,
                                                .mesh = {},
                                                .micro_batch = 64,
                                                .sequence = 1024,
                                                .bucket_bytes = 1 << 20,
                                                .optimizer = {},
                                                .precision = Precision::kBf16,
                                                .device = kCuda},
                                               *world.front());
  ASSERT_FALSE(composition.ok());
  EXPECT_EQ(composition.error().code, Code::kUnavailable);
  for (const char* words :
       {"for an arena of parameters ", "gradients ", "optimizer ", "activations ", "workspace ",
        "and 512 MiB for libraries", "on CUDA device 0", "bytes fit"}) {
    EXPECT_NE(composition.error().message.find(words), std::string::npos)
        << words << " in " << composition.error().message;
  }
}

// Products on a GPU need memory of their own where the CPU's need none.
TEST(EmulatedTraining, ThePeakOfProductsIsMeasuredOnTheDevice) {
  const SystemClock clock;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Result<double> peak =
        matmul_peak(kCuda, {.shape = {32, 16, 24}, .dtype = dtype, .rounds = 1, .times = 2}, clock);
    ASSERT_TRUE(peak.ok()) << peak.error().message;
    EXPECT_GT(*peak, 0);
  }
}

}  // namespace
}  // namespace lockstep
