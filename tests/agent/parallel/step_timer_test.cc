// Both implementations of the timer: the host's, and the GPU's on an emulated device.
#include "agent/parallel/step_timer.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lockstep::parallel {
namespace {

using std::chrono::milliseconds;

double sum_of(const StepNumbers& seconds) {
  double sum = 0;
  for (const auto& part : {seconds.data_seconds, seconds.forward_seconds, seconds.backward_seconds,
                           seconds.communication_seconds, seconds.update_seconds}) {
    sum += part.value();
  }
  return sum;
}

TEST(HostStepTimer, AddsUpPartsByTheClockAndCountsWhatIsLeftAsTheLastOne) {
  kernels::Stream stream;
  ManualClock clock;
  const auto timer = make_step_timer(stream, clock);
  for (int step = 1; step <= 2; ++step) {
    clock.advance(milliseconds(77));  // between steps
    ASSERT_TRUE(timer->begin().ok());
    for (int micro = 0; micro < 2; ++micro) {
      clock.advance(milliseconds(1));
      ASSERT_TRUE(timer->lap(StepPart::kData).ok());
      clock.advance(milliseconds(10 * step));
      ASSERT_TRUE(timer->lap(StepPart::kForward).ok());
      clock.advance(milliseconds(20));
      ASSERT_TRUE(timer->lap(StepPart::kBackward).ok());
    }
    clock.advance(milliseconds(3));
    ASSERT_TRUE(timer->lap(StepPart::kCommunication).ok());
    clock.advance(milliseconds(5));
    ASSERT_TRUE(timer->lap(StepPart::kUpdate).ok());
    clock.advance(milliseconds(4));
    StepNumbers seconds;
    ASSERT_TRUE(timer->end(seconds).ok());
    EXPECT_DOUBLE_EQ(*seconds.data_seconds, 0.002);
    EXPECT_DOUBLE_EQ(*seconds.forward_seconds, 0.02 * step);
    EXPECT_DOUBLE_EQ(*seconds.backward_seconds, 0.04);
    EXPECT_DOUBLE_EQ(*seconds.communication_seconds, 0.003);
    EXPECT_DOUBLE_EQ(*seconds.update_seconds, 0.009);
    EXPECT_DOUBLE_EQ(*seconds.step_seconds, sum_of(seconds));
  }
}

constexpr kernels::Device kCuda{kernels::DeviceType::kCuda, 0};
constexpr size_t kBytes = size_t{1} << 22;

// An emulated device with work to do.
struct Busy {
  kernels::Stream stream = kernels::Stream::create(kCuda).value();
  kernels::Buffer from = kernels::Buffer::allocate(kCuda, kBytes).value();
  kernels::Buffer to = kernels::Buffer::allocate(kCuda, kBytes).value();

  void work() {
    ASSERT_TRUE(
        kernels::copy_bytes(stream, {.to = to.data(), .from = from.data(), .bytes = kBytes}).ok());
  }
};

TEST(DeviceStepTimer, TakesThePartsFromTheDeviceAndTheTotalFromTheHost) {
  Busy busy;
  const ManualClock host;  // never advances: no part is measured by the host
  const auto timer = make_step_timer(busy.stream, host);
  ASSERT_TRUE(timer->begin().ok());
  busy.work();
  ASSERT_TRUE(timer->lap(StepPart::kForward).ok());
  busy.work();
  ASSERT_TRUE(timer->lap(StepPart::kUpdate).ok());
  ASSERT_TRUE(busy.stream.synchronize().ok());
  StepNumbers seconds;
  ASSERT_TRUE(timer->end(seconds).ok());
  EXPECT_GT(seconds.forward_seconds, 0);
  EXPECT_GT(seconds.update_seconds, 0);
  EXPECT_EQ(seconds.data_seconds, 0);
  EXPECT_EQ(seconds.backward_seconds, 0);
  EXPECT_EQ(seconds.communication_seconds, 0);
  EXPECT_EQ(seconds.step_seconds, 0);
}

TEST(DeviceStepTimer, HasPartsThatAddUpToNoMoreThanTheTotal) {
  Busy busy;
  const SystemClock clock;
  const auto timer = make_step_timer(busy.stream, clock);
  for (const int micros : {1, 3, 2}) {
    ASSERT_TRUE(timer->begin().ok());
    for (int micro = 0; micro < micros; ++micro) {
      for (const StepPart part : {StepPart::kData, StepPart::kForward, StepPart::kBackward}) {
        busy.work();
        ASSERT_TRUE(timer->lap(part).ok());
      }
    }
    for (const StepPart part : {StepPart::kCommunication, StepPart::kUpdate}) {
      busy.work();
      ASSERT_TRUE(timer->lap(part).ok());
    }
    ASSERT_TRUE(busy.stream.synchronize().ok());
    StepNumbers seconds;
    ASSERT_TRUE(timer->end(seconds).ok());
    for (const auto& part :
         {seconds.data_seconds, seconds.forward_seconds, seconds.backward_seconds,
          seconds.communication_seconds, seconds.update_seconds}) {
      EXPECT_GT(part, 0);
    }
    EXPECT_LE(sum_of(seconds), seconds.step_seconds);
  }
}

}  // namespace
}  // namespace lockstep::parallel
