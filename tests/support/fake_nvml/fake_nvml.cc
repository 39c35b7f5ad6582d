// A fake libnvidia-ml.so.1 with one GPU at 0000:41:00.0. It reads its values from the file named by
// FAKE_NVML:
// busy percent, memory used, memory, milliwatts, Xid
// They are decimal and separated by spaces; -1 is "not supported", and Xid 0 means none. The Xid is
// reported once per process. Without the file, initialization fails.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kTimeout = 10;
constexpr int kUnknown = 999;
constexpr unsigned long long kXidEvent = 8;

int the_gpu = 0;
bool has_told_xid = false;

struct Numbers {
  long long busy = 0, used = 0, size = 0, milliwatts = 0, xid = 0;
};

bool read_numbers(Numbers& to) {
  const char* path = std::getenv("FAKE_NVML");
  FILE* file = path == nullptr ? nullptr : std::fopen(path, "r");
  if (file == nullptr) return false;
  const int count = std::fscanf(file, "%lld %lld %lld %lld %lld", &to.busy, &to.used, &to.size,
                                &to.milliwatts, &to.xid);
  std::fclose(file);
  return count == 5;
}

struct Utilisation {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct Event {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  Numbers numbers;
  return read_numbers(numbers) ? 0 : kUnknown;
}
int nvmlShutdown() {
  return 0;
}
const char* nvmlErrorString(int code) {
  return code == kNotFound ? "Not Found" : code == kUnknown ? "Unknown Error" : "Not Supported";
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  if (std::strcmp(bus, "0000:41:00.0") != 0) return kNotFound;
  *device = &the_gpu;
  return 0;
}
int nvmlDeviceGetNvLinkState(void*, unsigned, unsigned*) {
  return kNotSupported;
}
int nvmlDeviceGetUtilizationRates(void*, Utilisation* into) {
  Numbers numbers;
  if (!read_numbers(numbers) || numbers.busy < 0) return kNotSupported;
  *into = {static_cast<unsigned>(numbers.busy), 0};
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* into) {
  Numbers numbers;
  if (!read_numbers(numbers) || numbers.used < 0) return kNotSupported;
  const auto size = static_cast<unsigned long long>(numbers.size);
  const auto used = static_cast<unsigned long long>(numbers.used);
  *into = {size, size - used, used};
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  Numbers numbers;
  if (!read_numbers(numbers) || numbers.milliwatts < 0) return kNotSupported;
  *milliwatts = static_cast<unsigned>(numbers.milliwatts);
  return 0;
}
int nvmlEventSetCreate(void** set) {
  *set = &the_gpu;
  return 0;
}
int nvmlDeviceRegisterEvents(void*, unsigned long long types, void*) {
  return types == kXidEvent ? 0 : kNotSupported;
}
int nvmlEventSetWait_v2(void*, Event* into, unsigned) {
  Numbers numbers;
  if (has_told_xid || !read_numbers(numbers) || numbers.xid == 0) return kTimeout;
  has_told_xid = true;
  *into = {&the_gpu, kXidEvent, static_cast<unsigned long long>(numbers.xid), 0, 0};
  return 0;
}
int nvmlEventSetFree(void*) {
  return 0;
}

}  // extern "C"
