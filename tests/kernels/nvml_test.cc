#include "kernels/device/nvml.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "kernels/device/shared_library.h"

namespace lockstep::kernels {
namespace {

// A fake driver with one GPU. Global, because its C functions take no context argument.
struct Driver {
  int inits = 0;
  int sets = 0;
  bool has_power = true;
  unsigned links = 4;
  unsigned links_up = 3;
  std::deque<NvmlFunctions::Event> events;
} driver;

constexpr const char* kBus = "0000:41:00.0";
int the_gpu = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kTimeout = 10;

NvmlFunctions functions() {
  NvmlFunctions f;
  f.init = [] { return ++driver.inits, 0; };
  f.shutdown = [] { return --driver.inits, 0; };
  f.error_string = [](int code) { return code == kNotFound ? "Not Found" : "Not Supported"; };
  f.device_by_bus = [](const char* bus, void** device) {
    if (std::strcmp(bus, kBus) != 0) return kNotFound;
    *device = &the_gpu;
    return 0;
  };
  f.link_state = [](void*, unsigned link, unsigned* is_active) {
    if (link >= driver.links) return kNotSupported;
    *is_active = link < driver.links_up ? 1 : 0;
    return 0;
  };
  f.utilisation = [](void*, NvmlFunctions::Utilisation* into) { return *into = {97, 40}, 0; };
  f.memory = [](void*, NvmlFunctions::Memory* into) { return *into = {100, 30, 70}, 0; };
  f.power = [](void*, unsigned* milliwatts) {
    *milliwatts = 650'500;
    return driver.has_power ? 0 : kNotSupported;
  };
  f.create_events = [](void** set) { return *set = &driver, ++driver.sets, 0; };
  f.register_events = [](void*, unsigned long long types, void*) {
    return types == NvmlFunctions::kXidEvent ? 0 : kNotSupported;
  };
  f.wait_event = [](void*, NvmlFunctions::Event* into, unsigned timeout_ms) {
    EXPECT_EQ(timeout_ms, 0U);
    if (driver.events.empty()) return kTimeout;
    *into = driver.events.front();
    driver.events.pop_front();
    return 0;
  };
  f.free_events = [](void*) { return --driver.sets, 0; };
  return f;
}

TEST(Nvml, SaysWhatTheGpuSaysAndLeavesOutWhatItCant) {
  driver = {};
  {
    auto nvml = Nvml::with_functions(functions());
    ASSERT_TRUE(nvml.ok());
    const auto sample = (*nvml)->sample(kBus);
    ASSERT_TRUE(sample.ok());
    EXPECT_EQ(sample->busy_percent, 97);
    EXPECT_EQ(sample->memory_used_bytes, 70U);
    EXPECT_EQ(sample->memory_total_bytes, 100U);
    EXPECT_EQ(sample->power_watts, 650.5);
    driver.has_power = false;
    EXPECT_FALSE((*nvml)->sample(kBus)->power_watts.has_value());
    EXPECT_EQ((*nvml)->nvlinks(kBus).value(), 3);
    driver.links = 0;
    EXPECT_EQ((*nvml)->nvlinks(kBus).value(), 0);
    EXPECT_EQ((*nvml)->sample("0000:99:00.0").error().message,
              "[nvml] nvmlDeviceGetHandleByPciBusId_v2 failed: Not Found");
  }
  EXPECT_EQ(driver.inits, 0);
}

TEST(Nvml, TellsXidsOnceAndNoMoreThanItsBound) {
  driver = {};
  {
    auto nvml = Nvml::with_functions(functions());
    ASSERT_TRUE(nvml.ok());
    driver.events.push_back({.device = &the_gpu, .type = NvmlFunctions::kXidEvent, .data = 79});
    EXPECT_TRUE((*nvml)->new_xids().empty());  // not watched yet
    ASSERT_TRUE((*nvml)->watch_xids(kBus).ok());
    driver.events.push_back({.device = &the_gpu, .type = 1, .data = 5});  // another event
    const std::vector<Xid> xids = (*nvml)->new_xids();
    ASSERT_EQ(xids.size(), 1U);
    EXPECT_EQ(xids[0].number, 79U);
    EXPECT_EQ(xids[0].bus, kBus);
    EXPECT_TRUE((*nvml)->new_xids().empty());
    driver.events.assign(1000, {.device = &the_gpu, .type = NvmlFunctions::kXidEvent, .data = 31});
    EXPECT_EQ((*nvml)->new_xids().size(), static_cast<size_t>(Nvml::kXidsMax));
    EXPECT_FALSE((*nvml)->watch_xids("0000:99:00.0").ok());
  }
  EXPECT_EQ(driver.sets, 0);
  EXPECT_EQ(driver.inits, 0);
}

TEST(SharedLibrary, SaysByNameWhatItDoesNotHave) {
  const SharedLibrary program{.handle = ::dlopen(nullptr, RTLD_NOW), .name = "program"};
  ASSERT_NE(program.handle, nullptr);
  size_t (*length)(const char*) = nullptr;
  ASSERT_TRUE(find_function(program, "strlen", length).ok());
  EXPECT_EQ(length("four"), 4U);
  const Status missing = find_function(program, "no_such_function", length);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kUnavailable);
  EXPECT_EQ(missing.error().message, "[program] the library does not export no_such_function");
  EXPECT_EQ(length, nullptr);
  ::dlclose(program.handle);
}

TEST(Nvml, ThatCantBeginIsUnavailable) {
  NvmlFunctions broken = functions();
  broken.init = [] { return kNotSupported; };
  const auto nvml = Nvml::with_functions(broken);
  ASSERT_FALSE(nvml.ok());
  EXPECT_EQ(nvml.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace lockstep::kernels
