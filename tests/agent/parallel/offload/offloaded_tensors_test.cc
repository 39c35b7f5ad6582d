// The CPU's; emulated_offload_test.cc has the GPU's.
#include "agent/parallel/offload/offloaded_tensors.h"

#include <gtest/gtest.h>

#include "kernels/device/parallel.h"
#include "tests/agent/parallel/offload/offloaded_update.h"

namespace lockstep::parallel {
namespace {

TEST(OffloadedTensors, GetTheBitsOfAnUpdateOnTheDevice) {
  for (const UpdateRule rule : {UpdateRule::kAdamW, UpdateRule::kMomentum, UpdateRule::kAdagrad}) {
    for (const bool far_parameters : {false, true}) {
      for (const int64_t room : {64, 192, 1024, 4096}) {
        expect_same_bits_as_on_the_device(
            {},
            {.rule = rule, .far_parameters = far_parameters, .room = room, .rounding_seed = 99});
      }
    }
  }
}

TEST(OffloadedTensors, GetThemWithParametersAlone) {
  expect_same_bits_as_on_the_device({}, {.rule = UpdateRule::kSgd, .far_parameters = true});
}

TEST(OffloadedTensors, GetThemInMemoryAndWithSeveralThreads) {
  kernels::set_threads(3);
  expect_same_bits_as_on_the_device({}, {.in_file = false, .room = 1024});
  kernels::set_threads(1);
}

TEST(OffloadedTensors, KeepTheirValuesIfTheyAreOnlyRead) {
  kernels::Stream stream;
  const UpdateCase wanted{.rule = UpdateRule::kSgd, .far_parameters = true};
  UpdatedMemory memory(stream, wanted, /*is_far=*/true);
  FarArrays far = memory.far();
  far.is_written = false;
  const SystemClock clock;
  const PieceBuffers buffers({}, wanted, far.size());
  auto offloaded =
      OffloadedTensors::create(stream, far, memory.tensors(), buffers.memory, clock).value();
  const auto before = memory.bytes();
  std::vector<float> seen;
  ASSERT_TRUE(offloaded
                  .visit([&](std::span<const kernels::UpdatedTensor> tensors) {
                    for (const kernels::UpdatedTensor& tensor : tensors) {
                      seen.insert(seen.end(), tensor.parameter, tensor.parameter + tensor.count);
                      std::fill_n(tensor.parameter, tensor.count, 0.0f);
                    }
                    return Status();
                  })
                  .ok());
  std::vector<float> expected;
  const std::vector<float> values = random_values(1);
  for (const kernels::UpdatedTensor& tensor : memory.tensors()) {
    const auto first = values.begin() + (tensor.parameter - far.parameters->data());
    expected.insert(expected.end(), first, first + tensor.count);
  }
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(memory.bytes(), before);
  EXPECT_EQ(offloaded.counts().bytes_written, 0U);
}

TEST(OffloadedTensors, EndWithTheErrorOfAVisit) {
  kernels::Stream stream;
  const UpdateCase wanted;
  UpdatedMemory memory(stream, wanted, /*is_far=*/true);
  const FarArrays far = memory.far();
  const SystemClock clock;
  const PieceBuffers buffers({}, wanted, far.size());
  auto offloaded =
      OffloadedTensors::create(stream, far, memory.tensors(), buffers.memory, clock).value();
  int visits = 0;
  const Status done = offloaded.visit([&](std::span<const kernels::UpdatedTensor>) {
    return ++visits == 5 ? Status(unavailable("[test] broken")) : Status();
  });
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "[test] broken");
  EXPECT_EQ(visits, 5);
}

}  // namespace
}  // namespace lockstep::parallel
