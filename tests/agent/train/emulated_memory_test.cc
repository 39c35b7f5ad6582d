// The memory that a worker allocates on an emulated CUDA device, compared with the plan it prints.
#include <gtest/gtest.h>

#include "tests/agent/train/training.h"
#include "tests/support/emulated_cuda/memory_use.h"

namespace lockstep::train {
namespace {

using emulated_cuda::memory_use;

// Training, validation and a sample, like the worker.
TEST(DeviceMemory, IsThePlansToTheByteWhateverIsDoneWithIt) {
  for (const ModelConfig& config : {kConfig, kLlama}) {
    for (const kernels::Precision precision :
         {kernels::Precision::kF32, kernels::Precision::kBf16}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kOps, Recompute::kBlocks}) {
        const TrainingSetup setup{
            .device = kCuda, .precision = precision, .recompute = recompute, .config = config};
        emulated_cuda::reset_memory_use();
        const uint64_t before = memory_use().device_bytes;
        Training training(setup);
        training.train(1);
        (void)training.validate();
        EXPECT_EQ(training.write_on(2).size(), 2u);
        const uint64_t planned = training.model().memory().bytes;
        EXPECT_EQ(memory_use().device_bytes - before, planned);
        EXPECT_EQ(memory_use().device_bytes_max - before, planned)
            << family_name(config.family) << " " << static_cast<int>(precision) << " "
            << static_cast<int>(recompute);
      }
    }
  }
}

// The table in the documentation is computed this way.
TEST(DeviceMemory, IsPlannedBeforeThereIsADevice) {
  auto world = comm::make_thread_world(1).value();
  for (const ModelConfig& config : {kConfig, kLlama}) {
    parallel::ComposeOptions options{.config = config, .mesh = {}, .optimizer = {}};
    options.micro_batch = kMicro;
    options.sequence = kContext;
    options.bucket_bytes = 1 << 20;
    options.precision = kernels::Precision::kBf16;
    options.device = kCuda;
    const kernels::ArenaPlan plan = parallel::plan_memory(options).value();
    const auto composition = parallel::Composition::create(options, *world.front()).value();
    EXPECT_EQ(kernels::arena_text(plan), kernels::arena_text(composition->memory()));
    EXPECT_EQ(kernels::bytes_of(plan, kernels::ArenaUse::kParameters),
              static_cast<uint64_t>(composition->store().arena().count) * 6);
  }
}

}  // namespace
}  // namespace lockstep::train
