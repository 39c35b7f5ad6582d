#include "agent/train/memory_table.h"

#include <gtest/gtest.h>

#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

parallel::ComposeOptions options_of(const char* preset) {
  parallel::ComposeOptions options{
      .design = model_preset(preset).value(), .mesh = {}, .optimizer = {}};
  options.sequence = 1024;
  options.precision = kernels::Precision::kBf16;
  options.device = {kernels::DeviceType::kCuda, 0};
  return options;
}

uint64_t taken_by(const parallel::ComposeOptions& options) {
  const kernels::ArenaPlan plan = parallel::plan_memory(options).value().device;
  EXPECT_GT(plan.reserve, 0u);
  return plan.bytes + plan.reserve;
}

TEST(LargestMicroBatch, FitsAndOneMoreDoesNot) {
  for (const char* preset : {"gpt2-124m", "gpt2-1.5b", "llama-3.2-1b"}) {
    parallel::ComposeOptions options = options_of(preset);
    const uint64_t bytes = 80'000'000'000;
    options.micro_batch = largest_micro_batch(options, bytes);
    ASSERT_GT(options.micro_batch, 0) << preset;
    EXPECT_LE(taken_by(options), bytes) << preset;
    ++options.micro_batch;
    EXPECT_GT(taken_by(options), bytes) << preset;
  }
  EXPECT_EQ(largest_micro_batch(options_of("llama-3.1-8b"), 80'000'000'000), 0);
}

TEST(LargestMicroBatch, GrowsWithWhatIsComputedAgain) {
  parallel::ComposeOptions options = options_of("gpt2-774m");
  int64_t before = 0;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kOps, Recompute::kBlocks}) {
    options.recompute = recompute;
    const int64_t most = largest_micro_batch(options, 80'000'000'000);
    EXPECT_GT(most, before);
    before = most;
  }
}

TEST(MemoryTable, IsTheOneInTheDocument) {
  const int64_t sizes[] = {80, 141};
  const std::string table = memory_table(sizes);
  const std::string document = read_file(LOCKSTEP_SOURCE_DIR "/docs/memory.md");
  EXPECT_NE(document.find("\n\n" + table + "\n"), std::string::npos)
      << "docs/memory.md should have:\n"
      << table;
}

}  // namespace
}  // namespace lockstep::train
