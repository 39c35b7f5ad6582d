// The training loop on a CUDA device, emulated or real, compared with the loop on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "agent/train/matmul_peak.h"
#include "common/layout/model_config.h"
#include "tests/agent/train/device_ranks.h"

namespace lockstep::train {
namespace {

// A single rank that has taken some steps.
class Alone {
 public:
  explicit Alone(const TrainingSetup& setup, int64_t steps = 0) : training_(setup) {
    training_.train(steps);
  }
  Training* operator->() { return &training_; }

 private:
  Training training_;
};

// In fp32 both sum the same products, in different orders.
void expect_the_same_steps(Alone& cuda, Alone& cpu) {
  const ModelDesign& design = cpu->options().design;
  if (!predicts_masked(design)) {  // four tokens a step, whose losses differ more than they fall
    EXPECT_LT(cpu->losses.back(), cpu->losses.front() - 0.05) << "nothing was learned";
  }
  expect_near(cuda->losses, cpu->losses, 1e-5);
  expect_near(cuda->norms, cpu->norms, 1e-4);
  EXPECT_NEAR(cuda->validate(), cpu->validate(), 1e-4);
  if (transformer_of(design) == nullptr || predicts_masked(design)) return;
  EXPECT_EQ(cuda->write_on(), cpu->write_on());
}

// bf16 activations have 8 fraction bits: a percent of the loss.
void expect_close_steps(Alone& cuda, Alone& cpu) {
  expect_near(cuda->losses, cpu->losses, 1e-2);
  expect_near(cuda->norms, cpu->norms, 5e-2);
  EXPECT_NEAR(cuda->validate(), cpu->validate(), 2e-2 * cpu->validate());
}

struct Kind {
  const char* name;
  ModelDesign design;
};

class DeviceTraining : public testing::TestWithParam<Kind> {
 protected:
  TrainingSetup on(kernels::Device device, kernels::Precision precision = kernels::Precision::kF32,
                   Recompute recompute = Recompute::kNone) const {
    return {.device = device,
            .precision = precision,
            .recompute = recompute,
            .design = GetParam().design};
  }
};

TEST_P(DeviceTraining, TakesTheStepsOfTheCpu) {
  Alone cpu(on({}), kSteps);
  Alone cuda(on(kCuda), kSteps);
  expect_the_same_steps(cuda, cpu);
  Alone half(on(kCuda, kernels::Precision::kBf16), kSteps);
  expect_close_steps(half, cpu);
}

// The order of threads in a block, blocks in a grid and streams does not matter.
TEST_P(DeviceTraining, IsTheSameBitForBitInWhateverOrderItsPartsRun) {
  for (const kernels::Precision precision : {kernels::Precision::kF32, kernels::Precision::kBf16}) {
    vary_order(1);
    Alone first(on(kCuda, precision), kFewSteps);
    const std::vector<float> expected = first->state();
    for (const uint64_t seed : {2, 3}) {
      vary_order(seed);
      Alone other(on(kCuda, precision), kFewSteps);
      EXPECT_EQ(other->losses, first->losses);
      EXPECT_TRUE(other->state() == expected) << "seed " << seed;
    }
  }
}

class DeviceTransformer : public DeviceTraining {};

// Recomputation applies GELU to the stored bf16 argument; cuBLASLt's epilogue applies it to the
// fp32 sum.
TEST_P(DeviceTransformer, ComputesActivationsAgain) {
  Alone kept(on(kCuda, kernels::Precision::kBf16), kFewSteps);
  Alone blocks(on(kCuda, kernels::Precision::kBf16, Recompute::kBlocks), kFewSteps);
  EXPECT_EQ(blocks->losses, kept->losses);
  EXPECT_TRUE(blocks->state() == kept->state()) << "not the same bits";
  Alone ops(on(kCuda, kernels::Precision::kBf16, Recompute::kOps), kFewSteps);
  expect_near(ops->losses, kept->losses, 1e-3);
  expect_near(ops->norms, kept->norms, 1e-2);
}

// Times come from events on the compute stream, which are read after the step.
TEST_P(DeviceTraining, SplitsTheTimeOfAStepByPart) {
  Alone cuda(on(kCuda), kFewSteps);
  for (const StepNumbers& step : cuda->seconds) {
    const double parts[] = {*step.data_seconds, *step.forward_seconds, *step.backward_seconds,
                            *step.communication_seconds, *step.update_seconds};
    for (const double part : parts) EXPECT_GT(part, 0);
    EXPECT_LE(std::accumulate(std::begin(parts), std::end(parts), 0.0), step.step_seconds);
  }
}

// Gradients of micro-batches add up to those of one batch.
TEST_P(DeviceTraining, AccumulatesAsTheCpuDoes) {
  TrainingSetup setup = on({});
  setup.accumulation = 3;
  Alone cpu(setup, kFewSteps);
  setup.device = kCuda;
  Alone cuda(setup, kFewSteps);
  expect_near(cuda->losses, cpu->losses, 1e-5);
  expect_near(cuda->norms, cpu->norms, 1e-4);
}

bool has_matrices(const ModelDesign& design) {
  return std::ranges::any_of(parameter_table(design), &Parameter::is_hidden_matrix);
}

TEST_P(DeviceTraining, OrthogonalisesMatricesAsTheCpuDoes) {
  if (!has_matrices(GetParam().design)) GTEST_SKIP() << "the model has no hidden matrix";
  TrainingSetup setup = on({});
  setup.optimizer = optim::OptimizerKind::kMuon;
  Alone cpu(setup, kSteps);
  EXPECT_NE(cpu->losses, Alone(on({}), kSteps)->losses) << "those of AdamW";
  setup.device = kCuda;
  Alone cuda(setup, kSteps);
  // Rounding errors of small singular values grow 3.4445^5 times.
  expect_near(cuda->losses, cpu->losses, 1e-4);
  setup.precision = kernels::Precision::kBf16;
  Alone half(setup, kSteps);
  expect_near(half->losses, cpu->losses, 2e-2);
  vary_order(2);
  Alone again(setup, kSteps);
  EXPECT_TRUE(again->state() == half->state()) << "not the same bits";
}

// With a gradient that is not finite nothing changes, although the host does not look at it.
TEST(OneDeviceWithMuon, ChangesNothingIfTheNormIsNotFinite) {
  TrainingSetup setup{.device = kCuda, .design = kClassifier};
  setup.optimizer = optim::OptimizerKind::kMuon;
  Alone run(setup, kFewSteps);
  std::vector<float> spoilt = run->state();
  spoilt[0] = std::numeric_limits<float>::infinity();
  run->set_state(spoilt);
  run->train(1);
  EXPECT_FALSE(std::isfinite(run->norms.back()));
  EXPECT_EQ(run->state(), spoilt);
}

std::string name_of_kind(const testing::TestParamInfo<Kind>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceTraining,
                         testing::Values(Kind{"Gpt", kConfig}, Kind{"Llama", kLlama},
                                         Kind{"Bert", kBert}, Kind{"Classifier", kClassifier},
                                         Kind{"Regressor", kRegressor}),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(Families, DeviceTransformer,
                         testing::Values(Kind{"Gpt", kConfig}, Kind{"Llama", kLlama},
                                         Kind{"Bert", kBert}),
                         name_of_kind);

// A run continued from saved state matches an uninterrupted run.
TEST(OneDevice, GoesOnFromWhatTheHostHasSaved) {
  Alone run({.device = kCuda}, kFewSteps);
  const std::vector<float> saved = run->state();
  Alone other({.device = kCuda});
  other->set_state(saved);
  EXPECT_EQ(other->state(), saved);
  EXPECT_EQ(other->validate(), run->validate());
}

TEST(OneDevice, SaysWhatItAskedForWhereThatDoesNotFit) {
  const auto world = std::move(comm::make_thread_world(1).value().front());
  const ModelConfig gpt2 = model_preset("gpt2-124m").value();
  const auto composition = parallel::Composition::create({.design = gpt2,
                                                          .mesh = {},
                                                          .micro_batch = 4096,
                                                          .sequence = 1024,
                                                          .bucket_bytes = 1 << 20,
                                                          .optimizer = {},
                                                          .precision = kernels::Precision::kBf16,
                                                          .device = kCuda},
                                                         *world, SystemClock());
  ASSERT_FALSE(composition.ok());
  EXPECT_EQ(composition.error().code, Code::kUnavailable);
  for (const char* words :
       {"for an arena of parameters ", "gradients ", "optimizer ", "activations ", "workspace ",
        "and 512 MiB for libraries", "on CUDA device 0", "bytes fit"}) {
    EXPECT_NE(composition.error().message.find(words), std::string::npos)
        << words << " in " << composition.error().message;
  }
}

// Products on a GPU need a workspace; those on the CPU do not.
TEST(OneDevice, ThePeakOfProductsIsMeasuredOnTheDevice) {
  const SystemClock clock;
  for (const kernels::DType dtype : {kernels::DType::kF32, kernels::DType::kBf16}) {
    const Result<double> peak =
        matmul_peak(kCuda, {.shape = {32, 16, 24}, .dtype = dtype, .rounds = 1, .times = 2}, clock);
    ASSERT_TRUE(peak.ok()) << peak.error().message;
    EXPECT_GT(*peak, 0);
  }
}

}  // namespace
}  // namespace lockstep::train
