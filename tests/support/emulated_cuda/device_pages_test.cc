// Unauthorized accesses to the emulated device's memory die where they happen, with a message.
#include "tests/support/emulated_cuda/device_pages.h"

#include <gtest/gtest.h>

#include <string_view>

#include "kernels/device/cuda/intrinsics.cuh"
#include "kernels/device/cuda/launch.cuh"
#include "tests/support/emulated_cuda/devices.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr Device kDevice{DeviceType::kCuda, 0};

__global__ void write_at(char* data, int64_t at) {
  if (threadIdx.x == 0) data[at] = 1;
}

struct Ground {
  Stream stream = Stream::create(kDevice).value();
  Buffer buffer = Buffer::allocate(kDevice, 5000, "weights").value();

  char* data() const { return static_cast<char*>(buffer.data()); }
  void write(int64_t at) {
    launch(stream, {.name = "write_at", .threads = 32}, write_at, data(), at);
    EXPECT_TRUE(stream.synchronize().ok());
  }
};

bool has_address_sanitizer() {
  return std::string_view(LOCKSTEP_SANITIZERS).starts_with("address");
}

TEST(DevicePages, AreZeroedAlignedAndForKernelsAndCopies) {
  Ground g;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(g.data()) % emulated_cuda::kDeviceAlignment, 0u);
  g.write(0);
  g.write(4999);
  std::vector<char> found(5000, 5), expected(5000);
  expected.front() = expected.back() = 1;
  ASSERT_TRUE(copy_bytes(g.stream, {found.data(), g.data(), found.size()}).ok());
  ASSERT_TRUE(g.stream.synchronize().ok());
  EXPECT_TRUE(found == expected);
}

TEST(DevicePages, CountWhatIsLeft) {
  const DeviceMemory before = memory_of(kDevice).value();
  {
    const Ground g;
    EXPECT_EQ(memory_of(kDevice)->free_bytes, before.free_bytes - 5000);
  }
  EXPECT_EQ(memory_of(kDevice)->free_bytes, before.free_bytes);
  Result<Buffer> most = Buffer::allocate(kDevice, before.free_bytes, "most");
  EXPECT_TRUE(most.ok());
  EXPECT_FALSE(Buffer::allocate(kDevice, 1, "one more").ok());
}

TEST(DevicePagesDeathTest, TheHostDiesWhereItReadsOrWritesThem) {
  Ground g;
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile char*>(g.data() + 17)),
               "host access to device memory: byte 17 of 5000 of 'weights'");
  EXPECT_DEATH(g.data()[17] = 1, "byte 17 of 5000 of 'weights'");
  // The same between launches.
  g.write(0);
  EXPECT_DEATH(g.data()[0] = 1, "byte 0 of 5000 of 'weights'");
}

// For the bytes up to the end of the page: the address sanitizer detects each access, without it
// the device does so on release.
TEST(DevicePagesDeathTest, AKernelDiesThatGoesPastAnAllocation) {
  Ground g;
  const char* beyond = has_address_sanitizer() ? "use-after-poison|byte 5[1-9]..|SEGV"
                                               : "byte 5[1-9].. of 'weights', which has 5000";
  EXPECT_DEATH(g.write(5000 + 120), beyond);
  EXPECT_DEATH(g.write(-4096), has_address_sanitizer() ? "use-after-poison|SEGV" : "byte -4096 of");
}

TEST(DevicePagesDeathTest, WhatWasWrittenBesideAnAllocationIsToldAtItsEnd) {
  for (const int64_t at : {int64_t{5000}, int64_t{-1}}) {
    EXPECT_DEATH(
        {
          Ground g;
          g.write(at);
        },
        has_address_sanitizer() ? "use-after-poison"
                                : "write outside 'weights' of 5000 bytes|byte -1 of 'weights'");
  }
}

TEST(DevicePagesDeathTest, AKernelDiesWhoseMemoryWasGivenBack) {
  // With some seeds freeing waits for the kernel; at least one of these seeds does not wait.
  EXPECT_DEATH(
      for (uint64_t seed = 1; seed <= 20; ++seed) {
        emulated_cuda::set_seed(seed);
        Ground g;
        launch(g.stream, {.name = "write_at", .threads = 32}, write_at, g.data(), int64_t{1});
        g.buffer = Buffer();
        static_cast<void>(g.stream.synchronize());
      },
      "device memory that was freed");
}

}  // namespace

}  // namespace lockstep::kernels::cuda
