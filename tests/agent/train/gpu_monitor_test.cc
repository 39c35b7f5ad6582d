#include "agent/train/gpu_monitor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>

namespace lockstep::train {
namespace {

// A fake driver with one GPU. Global, because the driver's functions have no context argument.
struct Driver {
  std::atomic<unsigned> busy = 40;
  std::atomic<bool> is_lost = false;
  std::atomic<unsigned long long> xid = 0;  // reported only once
  std::atomic<int> looks = 0;
  std::atomic<int> inits = 0;
} driver;

int the_gpu = 0;
constexpr char kBus[] = "0000:41:00.0";
constexpr int kLost = 15;

kernels::NvmlFunctions functions() {
  kernels::NvmlFunctions f;
  f.init = [] { return ++driver.inits, 0; };
  f.shutdown = [] { return --driver.inits, 0; };
  f.error_string = [](int) { return "GPU is lost"; };
  f.device_by_bus = [](const char* bus, void** device) {
    EXPECT_STREQ(bus, kBus);
    *device = &the_gpu;
    return driver.is_lost ? kLost : 0;
  };
  f.link_state = [](void*, unsigned, unsigned*) { return kLost; };
  f.utilisation = [](void*, kernels::NvmlFunctions::Utilisation* into) {
    ++driver.looks;
    return *into = {driver.busy, 0}, 0;
  };
  f.memory = [](void*, kernels::NvmlFunctions::Memory* into) { return *into = {100, 30, 70}, 0; };
  f.power = [](void*, unsigned*) { return kLost; };
  f.create_events = [](void** set) { return *set = &driver, 0; };
  f.register_events = [](void*, unsigned long long, void*) { return 0; };
  f.wait_event = [](void*, kernels::NvmlFunctions::Event* into, unsigned) {
    const unsigned long long xid = driver.xid.exchange(0);
    *into = {.device = &the_gpu, .type = kernels::NvmlFunctions::kXidEvent, .data = xid};
    return xid == 0 ? 10 : 0;
  };
  f.free_events = [](void*) { return 0; };
  return f;
}

class GpuMonitorTest : public testing::Test {
 protected:
  GpuMonitorTest() : page_(ProgressPage::create()) {
    driver.busy = 40;
    driver.is_lost = false;
    driver.xid = 0;
    driver.looks = 0;
  }
  GpuMonitor::Options options(Duration interval = std::chrono::milliseconds(1)) const {
    return {.gpu = {.name = "NVIDIA H200", .bus = kBus, .uuid = {1, 2, 3}},
            .interval = interval,
            .load = [] { return kernels::Nvml::with_functions(functions()); }};
  }
  GpuNumbers numbers() const {
    GpuNumbers numbers;
    page_->gpu().read(numbers);
    return numbers;
  }
  template <class Condition>
  void wait_until(Condition condition) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition(numbers())) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::yield();
    }
  }

  Result<ProgressPage> page_;
};

TEST_F(GpuMonitorTest, WritesWhatTheGpuSaysAgainAndAgain) {
  {
    GpuMonitor monitor(options(), page_->gpu());
    wait_until([](const GpuNumbers& gpu) { return gpu.samples > 0; });
    const GpuNumbers gpu = numbers();
    EXPECT_EQ(gpu.busy_ratio, 0.4);
    EXPECT_EQ(gpu.memory_used_bytes, 70);
    EXPECT_EQ(gpu.memory_size_bytes, 100);
    EXPECT_TRUE(std::isnan(gpu.power_watts)) << "it can't say";
    EXPECT_STREQ(gpu.name.data(), "NVIDIA H200");
    EXPECT_STREQ(gpu.bus.data(), kBus);
    EXPECT_EQ(gpu.uuid[2], 3);
    EXPECT_EQ(gpu.xids[0].count, 0u);
    driver.busy = 90;
    wait_until([](const GpuNumbers& g) { return g.busy_ratio == 0.9; });
  }
  EXPECT_EQ(driver.inits, 0);
}

TEST_F(GpuMonitorTest, EndsAtOnceAndTellsAnXidThatCameLast) {
  const auto begin = std::chrono::steady_clock::now();
  {
    GpuMonitor monitor(options(std::chrono::hours(1)), page_->gpu());
    wait_until([](const GpuNumbers& gpu) { return gpu.samples > 0; });
    driver.xid = 79;
    driver.is_lost = true;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
  EXPECT_EQ(numbers().xids[0].number, 79u);
  EXPECT_EQ(numbers().xids[0].count, 1u);
  EXPECT_TRUE(std::isnan(numbers().busy_ratio)) << "it is lost";
}

TEST_F(GpuMonitorTest, LooksOnAtAGpuThatSaidNothingForAWhile) {
  driver.is_lost = true;
  GpuMonitor monitor(options(), page_->gpu());
  wait_until([](const GpuNumbers& gpu) { return gpu.samples > 2; });
  EXPECT_TRUE(std::isnan(numbers().busy_ratio));
  driver.is_lost = false;
  wait_until([](const GpuNumbers& gpu) { return gpu.busy_ratio == 0.4; });
}

TEST_F(GpuMonitorTest, WritesNothingWhereThereIsNoLibrary) {
  GpuMonitor::Options none = options();
  none.load = []() -> Result<std::unique_ptr<kernels::Nvml>> { return unavailable("[nvml] none"); };
  { const GpuMonitor monitor(none, page_->gpu()); }
  EXPECT_EQ(numbers().samples, 0u);
}

}  // namespace
}  // namespace lockstep::train
