// The memory that a worker allocates on an emulated CUDA device, compared with the plan it prints.
#include <gtest/gtest.h>

#include "tests/agent/train/training.h"
#include "tests/kernels/arena_text.h"
#include "tests/support/emulated_cuda/memory_use.h"

namespace lockstep::train {
namespace {

using emulated_cuda::memory_use;

// Training, validation, a sample of a transformer, and the state as a checkpoint takes it, like the
// worker.
void expect_planned_bytes(const TrainingSetup& setup) {
  SCOPED_TRACE(std::string(family_name(setup.design)) + " " +
               std::to_string(static_cast<int>(setup.precision)) + " " +
               std::to_string(static_cast<int>(setup.recompute)));
  emulated_cuda::reset_memory_use();
  const emulated_cuda::MemoryUse before = memory_use();
  Training training(setup);
  training.train(1);
  (void)training.validate();
  if (transformer_of(setup.design) != nullptr && !predicts_masked(setup.design)) {
    EXPECT_EQ(training.write_on(2).size(), 2u);
  }
  training.set_state(training.state());
  const parallel::MemoryPlan& planned = training.model().memory();
  const emulated_cuda::MemoryUse after = memory_use();
  EXPECT_EQ(after.device_bytes - before.device_bytes, planned.device.bytes);
  EXPECT_EQ(after.device_bytes_max - before.device_bytes, planned.device.bytes);
  EXPECT_EQ(after.pinned_bytes - before.pinned_bytes, planned.pinned.bytes);
  EXPECT_EQ(after.pinned_bytes_max - before.pinned_bytes, planned.pinned.bytes);
}

TEST(DeviceMemory, IsThePlansToTheByteWhateverIsDoneWithIt) {
  for (const kernels::Precision precision : {kernels::Precision::kF32, kernels::Precision::kBf16}) {
    for (const ModelConfig& config : {kConfig, kLlama, kBert}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kOps, Recompute::kBlocks}) {
        expect_planned_bytes(
            {.device = kCuda, .precision = precision, .recompute = recompute, .design = config});
      }
    }
    for (const MlpConfig& config : {kClassifier, kRegressor}) {
      expect_planned_bytes({.device = kCuda, .precision = precision, .design = config});
    }
  }
}

// The table in the documentation is computed this way.
TEST(DeviceMemory, IsPlannedBeforeThereIsADevice) {
  const SystemClock clock;
  auto world = comm::make_thread_world(1).value();
  for (const ModelConfig& config : {kConfig, kLlama, kBert}) {
    parallel::ComposeOptions options{.design = config, .mesh = {}, .optimizer = {}};
    options.micro_batch = kMicro;
    options.sequence = kContext;
    options.bucket_bytes = 1 << 20;
    options.precision = kernels::Precision::kBf16;
    options.device = kCuda;
    const parallel::MemoryPlan plan = parallel::plan_memory(options).value();
    const auto composition = parallel::Composition::create(options, *world.front(), clock).value();
    EXPECT_EQ(kernels::arena_text(plan.device), kernels::arena_text(composition->memory().device));
    EXPECT_EQ(kernels::arena_text(plan.pinned), kernels::arena_text(composition->memory().pinned));
    EXPECT_EQ(kernels::bytes_of(plan.device, kernels::ArenaUse::kParameters),
              static_cast<uint64_t>(composition->state().arena->count) * 6);
  }
}

}  // namespace
}  // namespace lockstep::train
