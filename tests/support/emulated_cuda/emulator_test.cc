// Tests that the emulator detects the errors it is meant to detect.
#include "tests/support/emulated_cuda/emulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "kernels/device/cuda/intrinsics.cuh"
#include "kernels/device/cuda/launch.cuh"
#include "tests/support/emulated_cuda/devices.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr Device kDevice{DeviceType::kCuda, 0};
constexpr int kThreads = 64;

Status run(const LaunchShape& shape, auto kernel, auto... arguments) {
  TRY_ASSIGN(Stream stream, Stream::create(kDevice));
  launch(stream, shape, kernel, arguments...);
  return stream.synchronize();
}

__global__ void number_all(int32_t* to) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  to[block * blockDim.x + threadIdx.x] += static_cast<int32_t>(block * blockDim.x + threadIdx.x);
}

TEST(Emulator, RunsEveryThreadOfEveryBlockOnce) {
  const LaunchShape shape{.name = "number_all", .blocks = {5, 3, 2}, .threads = kThreads};
  std::vector<int32_t> got(5 * 3 * 2 * kThreads), want(got.size());
  std::iota(want.begin(), want.end(), 0);
  ASSERT_TRUE(run(shape, number_all, got.data()).ok());
  EXPECT_EQ(got, want);
}

TEST(Emulator, StartsNothingForAnEmptyGrid) {
  std::vector<int32_t> got(1, 7);
  EXPECT_TRUE(
      run({.name = "none", .blocks = {0}, .threads = kThreads}, number_all, got.data()).ok());
  EXPECT_EQ(got[0], 7);
}

TEST(Emulator, RefusesShapesThatNoGpuTakes) {
  int32_t* none = nullptr;
  for (const LaunchShape& shape :
       {LaunchShape{.name = "many", .threads = 2048},
        LaunchShape{.name = "no warps", .threads = 33}, LaunchShape{.name = "no threads"},
        LaunchShape{.name = "wide", .blocks = {1, 70000}, .threads = 32},
        LaunchShape{.name = "greedy", .threads = 32, .shared_bytes = 300000}}) {
    const Status status = run(shape, number_all, none);
    ASSERT_FALSE(status.ok()) << shape.name;
    EXPECT_EQ(status.error().code, Code::kInvalid);
    EXPECT_NE(status.error().message.find(shape.name), std::string::npos) << status.error().message;
  }
}

// Each thread passes its number to its neighbour through shared memory, `rounds` times.
template <bool kWithBarriers>
__global__ void pass_on(float* values, int rounds) {
  float* shared = shared_memory<float>();
  const unsigned i = threadIdx.x;
  for (int round = 0; round < rounds; ++round) {
    shared[i] = values[i];
    if (kWithBarriers) sync_block();
    values[i] = shared[(i + 1) % blockDim.x];
    if (kWithBarriers) sync_block();
  }
}

constexpr LaunchShape kPassOn{
    .name = "pass_on", .threads = kThreads, .shared_bytes = kThreads * sizeof(float)};

std::vector<float> passed_on(void (*kernel)(float*, int), int rounds) {
  std::vector<float> values(kThreads);
  std::iota(values.begin(), values.end(), 0.0f);
  EXPECT_TRUE(run(kPassOn, kernel, values.data(), rounds).ok());
  return values;
}

TEST(Emulator, KeepsBarriersForEverySeed) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emulated_cuda::set_seed(seed);
    const std::vector<float> values = passed_on(pass_on<true>, 3);
    for (int i = 0; i < kThreads; ++i) {
      EXPECT_EQ(values[static_cast<size_t>(i)], static_cast<float>((i + 3) % kThreads));
    }
  }
}

TEST(Emulator, ShowsAMissingBarrierAsNan) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emulated_cuda::set_seed(seed);
    const std::vector<float> values = passed_on(pass_on<false>, 1);
    EXPECT_TRUE(std::isnan(std::accumulate(values.begin(), values.end(), 0.0f))) << seed;
  }
}

// In each round every thread writes a number and reads that of a thread in the other warp. Both
// warps have equally many exchanges before each access, so that no error shows while they run in
// step.
template <bool kWithBarrier>
__global__ void read_late(float* sums) {
  auto* numbers = shared_memory<float>();
  const unsigned i = threadIdx.x;
  for (int round = 0; round < 4; ++round) {
    numbers[i] = static_cast<float>(round);
    sync_block();
    sync_warp();
    sums[i] += numbers[(i + kThreads / 2) % kThreads];
    if (kWithBarrier) sync_block();
    sync_warp();
  }
}

bool reads_in_time(void (*kernel)(float*)) {
  std::vector<float> sums(kThreads);
  const LaunchShape shape{
      .name = "read_late", .threads = kThreads, .shared_bytes = kThreads * sizeof(float)};
  EXPECT_TRUE(run(shape, kernel, sums.data()).ok());
  return sums == std::vector<float>(kThreads, 6.0f);
}

TEST(Emulator, ShowsThatAWarpRunsAheadOfOneThatStillReads) {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emulated_cuda::set_seed(seed);
    EXPECT_TRUE(reads_in_time(read_late<true>)) << seed;
    if (!reads_in_time(read_late<false>)) ++wrong;
  }
  EXPECT_GT(wrong, 15);
}

// After the first barrier, one thread ends while the others wait at the second one.
__global__ void leave_early(int) {
  sync_block();
  if (threadIdx.x == 5) return;
  sync_block();
}
__global__ void part_ways(int) {
  if (threadIdx.x < 32) {
    sync_block();
  } else {
    sync_block();
  }
}
__global__ void half_a_warp(int) {
  if (threadIdx.x % 32 < 16) sync_warp();
}
__global__ void warp_and_block(int) {
  if (threadIdx.x == 3) {
    sync_block();
  } else {
    sync_warp();
  }
}
__global__ void two_exchanges(int) {
  if (threadIdx.x % 2 == 0) {
    ballot(true);
  } else {
    ballot(true);
  }
}
__global__ void odd_address(int) {
  alignas(16) char bytes[32] = {};
  load_16_bytes(bytes + 4);
}

struct Wrong {
  const char* name;
  void (*kernel)(int);
  const char* words;
};

class WrongKernels : public testing::TestWithParam<Wrong> {};

TEST_P(WrongKernels, AreNamedWithTheirPlaceInsteadOfHanging) {
  const LaunchShape shape{.name = GetParam().name, .blocks = {2}, .threads = kThreads};
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    emulated_cuda::set_seed(seed);
    const Status status = run(shape, GetParam().kernel, 0);
    ASSERT_FALSE(status.ok());
    const std::string& message = status.error().message;
    EXPECT_NE(message.find(GetParam().words), std::string::npos) << message;
    EXPECT_NE(message.find(GetParam().name), std::string::npos) << message;
    EXPECT_NE(message.find("emulator_test.cc:"), std::string::npos) << message;
    emulated_cuda::reset_devices();
  }
  // The emulator still works afterwards.
  std::vector<int32_t> got(kThreads);
  EXPECT_TRUE(run({.name = "after", .threads = kThreads}, number_all, got.data()).ok());
  EXPECT_EQ(got.back(), kThreads - 1);
}

INSTANTIATE_TEST_SUITE_P(
    Emulator, WrongKernels,
    testing::Values(Wrong{"leave_early", leave_early, "thread 5 has ended"},
                    Wrong{"part_ways", part_ways, "waits at the barrier of"},
                    Wrong{"half_a_warp", half_a_warp, "lane"},
                    Wrong{"warp_and_block", warp_and_block, "which never arrive"},
                    Wrong{"two_exchanges", two_exchanges, "in another exchange"},
                    Wrong{"odd_address", odd_address, "not aligned"}),
    [](const auto& info) { return std::string(info.param.name); });

// An asynchronous copy, whose data is there only after the wait.
template <bool kWaits>
__global__ void copy_behind(const float* from, float* to) {
  float* shared = shared_memory<float>();
  begin_copy_16_bytes(shared + 4 * threadIdx.x, from + 4 * threadIdx.x);
  commit_copies();
  if (kWaits) wait_for_copies<0>();
  for (unsigned i = 0; i < 4; ++i) to[4 * threadIdx.x + i] = shared[4 * threadIdx.x + i];
}

TEST(Emulator, FinishesCopiesWhenTheyAreWaitedForAndNoSooner) {
  alignas(16) float from[4 * kThreads];
  float to[4 * kThreads];
  std::iota(from, from + 4 * kThreads, 1.0f);
  const LaunchShape shape{.name = "copy", .threads = kThreads, .shared_bytes = sizeof from};
  ASSERT_TRUE(run(shape, copy_behind<true>, from, to).ok());
  EXPECT_TRUE(std::equal(from, from + 4 * kThreads, to));
  ASSERT_TRUE(run(shape, copy_behind<false>, from, to).ok());
  for (const float value : to) EXPECT_TRUE(std::isnan(value));
}

// With two groups, waiting for all but one finishes only the first.
__global__ void two_groups(const float* from, float* to) {
  if (threadIdx.x > 0) return;
  float* shared = shared_memory<float>();
  for (int group = 0; group < 2; ++group) {
    begin_copy_16_bytes(shared + 4 * group, from + 4 * group);
    commit_copies();
  }
  wait_for_copies<1>();
  to[0] = shared[0];
  to[1] = shared[4];
  wait_for_copies<0>();
  to[2] = shared[4];
}

TEST(Emulator, FinishesCopiesGroupByGroup) {
  alignas(16) float from[8] = {1, 1, 1, 1, 2, 2, 2, 2};
  float to[3];
  const LaunchShape shape{.name = "two_groups", .threads = 32, .shared_bytes = sizeof from};
  ASSERT_TRUE(run(shape, two_groups, from, to).ok());
  EXPECT_EQ(to[0], 1.0f);
  EXPECT_TRUE(std::isnan(to[1]));
  EXPECT_EQ(to[2], 2.0f);
}

__global__ void one_too_far(float* to, int count) {
  to[count * static_cast<int>(threadIdx.x == 31)] = 1.0f;
}
__global__ void one_too_far_in_shared_memory(float*, int count) {
  shared_memory<float>()[count * static_cast<int>(threadIdx.x == 31)] = 1.0f;
}

// Works on a fiber's stack as on any other.
TEST(EmulatorDeathTest, LetsTheAddressSanitizerSeeWhatIsOutOfBounds) {
  if (!std::string_view(LOCKSTEP_SANITIZERS).starts_with("address")) {
    GTEST_SKIP() << "a build without the address sanitizer";
  }
  Result<Buffer> buffer = Buffer::allocate(kDevice, 7 * sizeof(float));
  ASSERT_TRUE(buffer.ok());
  const LaunchShape shape{.name = "one_too_far", .threads = 32, .shared_bytes = 7 * sizeof(float)};
  for (auto* kernel : {one_too_far, one_too_far_in_shared_memory}) {
    ASSERT_TRUE(run(shape, kernel, buffer->f32(), 6).ok());
    EXPECT_DEATH(static_cast<void>(run(shape, kernel, buffer->f32(), 7)),
                 "heap-buffer-overflow|use-after-poison");
  }
}

TEST(EmulatedDevice, HasMemoryStreamsAndEvents) {
  ASSERT_EQ(device_count(DeviceType::kCuda), 1);
  Result<Stream> stream = Stream::create(kDevice);
  Result<Event> event = Event::create(kDevice);
  Result<Buffer> buffer = Buffer::allocate(kDevice, 12);
  ASSERT_TRUE(stream.ok() && event.ok() && buffer.ok());
  const std::vector<float> from = {1.0f, 2.0f, 3.0f};
  std::vector<float> to(3);
  ASSERT_TRUE(copy_bytes(*stream, {buffer->data(), from.data(), 12}).ok());
  ASSERT_TRUE(event->record(stream->handle()).ok());
  ASSERT_TRUE(copy_bytes(*stream, {to.data(), buffer->data(), 12}).ok());
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(to, from);
  EXPECT_FALSE(Stream::create({DeviceType::kCuda, 1}).ok());
  const Result<Buffer> greedy = Buffer::allocate(kDevice, size_t{1} << 40, "too much");
  ASSERT_FALSE(greedy.ok());
  EXPECT_NE(greedy.error().message.find("too much"), std::string::npos);
}

TEST(EmulatedDevice, KeepsTheTimeOfTimedEventsAlone) {
  Result<Stream> stream = Stream::create(kDevice);
  Result<Event> before = Event::create_timed(kDevice);
  Result<Event> after = Event::create_timed(kDevice);
  Result<Event> other = Event::create(kDevice);
  ASSERT_TRUE(stream.ok() && before.ok() && after.ok() && other.ok());
  ASSERT_TRUE(before->record(stream->handle()).ok());
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_NE(before->seconds_until(*after).error().message.find("never recorded"),
            std::string::npos);
  std::vector<int32_t> numbers(5 * kThreads);
  launch(*stream, {.name = "number_all", .blocks = {5}, .threads = kThreads}, number_all,
         numbers.data());
  ASSERT_TRUE(after->record(stream->handle()).ok());
  ASSERT_TRUE(other->record(stream->handle()).ok());
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_GT(before->seconds_until(*after).value(), 0);
  EXPECT_LT(after->seconds_until(*before).value(), 0);
  EXPECT_NE(before->seconds_until(*other).error().message.find("is not timed"), std::string::npos);
}

}  // namespace

}  // namespace lockstep::kernels::cuda
