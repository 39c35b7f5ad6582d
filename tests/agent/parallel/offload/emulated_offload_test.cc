// Far arrays of an emulated CUDA device, whose streams run in any order that events allow.
#include <gtest/gtest.h>

#include "tests/agent/parallel/offload/offloaded_update.h"
#include "tests/support/emulated_cuda/devices.h"

namespace lockstep::parallel {
namespace {

constexpr kernels::Device kCuda{kernels::DeviceType::kCuda, 0};
constexpr uint64_t kSeeds = 6;
constexpr uint64_t kManySeeds = 20;

TEST(EmulatedOffload, GetsTheBitsOfAnUpdateOnTheDevice) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    emulated_cuda::set_seed(seed);
    for (const bool in_file : {false, true}) {
      for (const bool far_parameters : {false, true}) {
        expect_same_bits_as_on_the_device(kCuda, {.far_parameters = far_parameters,
                                                  .in_file = in_file,
                                                  .room = 256,
                                                  .rounding_seed = 99});
      }
    }
  }
}

TEST(EmulatedOffload, GetsThemWithTheOtherRules) {
  for (const UpdateRule rule : {UpdateRule::kMomentum, UpdateRule::kAdagrad}) {
    for (const bool in_file : {false, true}) {
      expect_same_bits_as_on_the_device(kCuda, {.rule = rule, .in_file = in_file, .room = 512});
    }
  }
  expect_same_bits_as_on_the_device(kCuda, {.rule = UpdateRule::kSgd, .far_parameters = true});
}

// Streams of AdamW's states in an emulated device.
struct Offloaded {
  UpdateCase wanted;
  kernels::Stream stream = kernels::Stream::create(kCuda).value();
  UpdatedMemory memory{stream, wanted, /*is_far=*/true};
  SystemClock clock;
  PieceBuffers buffers{kCuda, wanted, 2};
  OffloadedTensors tensors =
      OffloadedTensors::create(stream, memory.far(), memory.tensors(), buffers.memory, clock)
          .value();
};

Status update(Offloaded& offloaded, std::span<const kernels::UpdatedTensor> tensors) {
  const kernels::OpTable& ops = *kernels::device_ops(kCuda.type).value();
  run_op(ops, offloaded.stream, offloaded.wanted, /*step=*/1, tensors);
  return {};
}

// Read by the host at once, whatever is still issued.
std::vector<float> first_state(const Offloaded& offloaded) {
  return values_of(*offloaded.memory.far().states[0]);
}

TEST(EmulatedOffload, IsDoneWhenItReturns) {
  for (uint64_t seed = 1; seed <= kManySeeds; ++seed) {
    emulated_cuda::set_seed(seed);
    Offloaded offloaded{.wanted = {.in_file = false}};
    ASSERT_TRUE(
        offloaded.tensors.visit([&](auto tensors) { return update(offloaded, tensors); }).ok());
    const std::vector<float> found = first_state(offloaded);
    EXPECT_NE(found.front(), kUpdatePadding);
    EXPECT_NE(found[4091], kUpdatePadding);  // the last element of the last tensor
    for (int i = 0; i < 3; ++i) (void)offloaded.memory.bytes();
    EXPECT_EQ(first_state(offloaded), found) << "seed " << seed;
  }
}

TEST(EmulatedOffload, CopiesNothingAfterAnErrorAndCanRunAgain) {
  for (uint64_t seed = 1; seed <= kManySeeds; ++seed) {
    emulated_cuda::set_seed(seed);
    for (const bool in_file : {false, true}) {
      Offloaded offloaded{.wanted = {.in_file = in_file}};
      int visits = 0;
      const Status done = offloaded.tensors.visit([&](auto tensors) {
        return ++visits == 5 ? Status(unavailable("[test] broken")) : update(offloaded, tensors);
      });
      ASSERT_FALSE(done.ok());
      EXPECT_EQ(done.error().message, "[test] broken");
      const std::vector<float> found = first_state(offloaded);
      for (int i = 0; i < 3; ++i) (void)offloaded.memory.bytes();
      EXPECT_EQ(first_state(offloaded), found) << "seed " << seed;
      EXPECT_TRUE(offloaded.tensors.visit([](auto) { return Status(); }).ok());
      EXPECT_EQ(first_state(offloaded), found);
    }
  }
}

TEST(EmulatedOffload, ReportsAnErrorOfTheDevice) {
  Offloaded offloaded{.wanted = {.in_file = false}};
  int visits = 0;
  const Status done = offloaded.tensors.visit([&](std::span<const kernels::UpdatedTensor>) {
    if (++visits < 3) return Status();
    return emulated_cuda::issue(offloaded.stream.handle(),
                                [](uint64_t) { return unavailable("[test] a kernel fault"); });
  });
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message.find("a kernel fault"), std::string::npos) << done.error().message;
  emulated_cuda::reset_devices();
}

TEST(EmulatedOffload, CountsTheDevicesTime) {
  Offloaded offloaded{.wanted = {.in_file = false}};
  const auto nothing = [](std::span<const kernels::UpdatedTensor>) { return Status(); };
  ASSERT_TRUE(offloaded.tensors.visit(nothing).ok());
  const OffloadCounts counts = offloaded.tensors.counts();
  EXPECT_GT(counts.seconds, 0);
  EXPECT_GT(counts.waited_seconds, 0);
  EXPECT_LE(counts.waited_seconds, counts.seconds);
}

}  // namespace
}  // namespace lockstep::parallel
