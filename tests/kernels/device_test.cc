#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/device/parallel.h"

namespace lockstep::kernels {

namespace {

TEST(Partition, CoversEveryItemOnceInOrderWithSizesThatDifferByOneAtMost) {
  for (const int64_t n : {1, 2, 7, 64, 1000}) {
    for (const int64_t grain : {1, 3, 100}) {
      for (const int threads : {1, 2, 5}) {
        const Partition partition{.n = n, .grain = grain, .threads = threads};
        const int chunks = chunk_count(partition);
        ASSERT_GE(chunks, 1);
        ASSERT_LE(chunks, threads);
        int64_t at = 0;
        for (int i = 0; i < chunks; ++i) {
          const Range range = chunk(partition, i);
          EXPECT_EQ(range.begin, at);
          EXPECT_EQ(range.index, i);
          EXPECT_GE(range.end - range.begin, n / chunks);
          EXPECT_LE(range.end - range.begin, n / chunks + 1);
          at = range.end;
        }
        EXPECT_EQ(at, n);
      }
    }
  }
}

TEST(Partition, UsesNoMoreThreadsThanTheGrainIsWorth) {
  EXPECT_EQ(chunk_count({.n = 0, .grain = 1, .threads = 4}), 0);
  EXPECT_EQ(chunk_count({.n = 99, .grain = 100, .threads = 4}), 1);
  EXPECT_EQ(chunk_count({.n = 101, .grain = 100, .threads = 4}), 2);
  EXPECT_EQ(chunk_count({.n = 1000, .grain = 100, .threads = 4}), 4);
}

TEST(ParallelFor, CallsTheBodyForEveryChunkAlsoFromSeveralThreadsAtOnce) {
  set_threads(3);
  constexpr int64_t kItems = 1000;
  constexpr int kRounds = 20;
  std::array<std::atomic<int64_t>, 3> sums = {};
  {
    std::vector<std::jthread> callers;
    for (std::atomic<int64_t>& sum : sums) {
      callers.emplace_back([&sum] {
        for (int round = 0; round < kRounds; ++round) {
          parallel_for(kItems, 1, [&sum](Range range) {
            for (int64_t i = range.begin; i < range.end; ++i) sum += i;
          });
        }
      });
    }
  }
  set_threads(1);
  for (const std::atomic<int64_t>& sum : sums) EXPECT_EQ(sum, kRounds * kItems * (kItems - 1) / 2);
}

TEST(ParallelFor, DoesNothingForNoItems) {
  bool called = false;
  parallel_for(0, 1, [&](Range) { called = true; });
  EXPECT_FALSE(called);
}

TEST(Buffer, IsZeroedAlignedAndMovable) {
  Result<Buffer> made = Buffer::allocate({}, 1001);
  ASSERT_TRUE(made.ok());
  Buffer buffer = std::move(made).value();
  EXPECT_EQ(buffer.bytes(), 1001u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  const char* bytes = static_cast<const char*>(buffer.data());
  for (size_t i = 0; i < buffer.bytes(); ++i) ASSERT_EQ(bytes[i], 0);
  const Buffer moved = std::move(buffer);
  EXPECT_EQ(moved.data(), bytes);
  EXPECT_EQ(moved.workspace().bytes, 1001u);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.bytes(), 0u);
}

TEST(DeviceHandle, IsGivenBackOnceToItsDeviceWhereverItWasMoved) {
  static std::vector<std::pair<int, void*>> released;
  const auto release = [](Device device, void* handle) {
    released.emplace_back(device.index, handle);
  };
  int a = 0;
  int b = 0;
  {
    DeviceHandle first(&a, {{DeviceType::kCuda, 1}, release});
    DeviceHandle second(&b, {{DeviceType::kCuda, 2}, release});
    first = std::move(second);
    EXPECT_EQ(first.get(), &b);
    const DeviceHandle third = std::move(first);
    EXPECT_EQ(first.get(), nullptr);
  }
  EXPECT_EQ(released, (std::vector<std::pair<int, void*>>{{1, &a}, {2, &b}}));
}

TEST(Buffer, OfNoBytesIsEmpty) {
  const Result<Buffer> buffer = Buffer::allocate({}, 0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->data(), nullptr);
}

TEST(Device, DescribesTheCpu) {
  ASSERT_EQ(device_count(DeviceType::kCpu), 1);
  const Result<DeviceInfo> info = describe({});
  ASSERT_TRUE(info.ok());
  EXPECT_FALSE(info->name.empty());
  EXPECT_GT(info->memory_bytes, 0u);
}

TEST(Device, RefusesAnIndexThatIsNotThere) {
  const Result<DeviceInfo> cpu = describe({.index = 1});
  ASSERT_FALSE(cpu.ok());
  EXPECT_EQ(cpu.error().code, Code::kNotFound);
  const Device past_the_last{DeviceType::kCuda, device_count(DeviceType::kCuda)};
  EXPECT_FALSE(describe(past_the_last).ok());
  EXPECT_FALSE(Stream::create(past_the_last).ok());
  EXPECT_FALSE(Buffer::allocate(past_the_last, 16).ok());
}

// Copies bytes to the device and back, for any device type.
void expect_round_trip(Device device) {
  Result<Stream> stream = Stream::create(device);
  ASSERT_TRUE(stream.ok()) << stream.error().message;
  Result<Buffer> buffer = Buffer::allocate(device, 64);
  ASSERT_TRUE(buffer.ok()) << buffer.error().message;
  std::array<float, 16> from = {}, to = {};
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  ASSERT_TRUE(copy_bytes(*stream, {.to = buffer->data(), .from = from.data(), .bytes = 64}).ok());
  ASSERT_TRUE(copy_bytes(*stream, {.to = to.data(), .from = buffer->data(), .bytes = 64}).ok());
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(from, to);
}

TEST(Stream, CopiesToTheCpuAndBack) {
  expect_round_trip({});
}

TEST(Stream, CopiesToCudaAndBack) {
  if (device_count(DeviceType::kCuda) == 0) GTEST_SKIP() << "no CUDA device";
  expect_round_trip({DeviceType::kCuda, 0});
}

TEST(View, KnowsItsDtype) {
  float f = 1.0f;
  Bf16 b = {};
  EXPECT_EQ(View(&f).f32(), &f);
  EXPECT_EQ(ConstView(View(&b)).bf16(), &b);
  EXPECT_FALSE(View());
  EXPECT_DEATH(View(&b).f32(), "CHECK failed");
}

}  // namespace

}  // namespace lockstep::kernels
