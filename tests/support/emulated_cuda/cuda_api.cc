// The twin of kernels/device/cuda/cuda_api.cc: one device, whose memory is the host's and whose
// streams are done with everything when a call returns.
#include "kernels/device/cuda_api.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "kernels/device/device_words.h"

namespace lockstep::cuda_api {

namespace {

constexpr size_t kAlignment = 256;
// As a small GPU's; what is asked for beyond it is refused as there.
constexpr uint64_t kMemoryBytes = uint64_t{4} << 30;

using EventClock = std::chrono::steady_clock;

struct Handle {};

struct EventHandle {
  bool is_timed = false;
  std::optional<EventClock::time_point> passed_at;  // since the last record()
};

EventHandle& event_of(void* event) {
  return *static_cast<EventHandle*>(event);
}

Status expect_device(int index, const char* call) {
  if (index == 0) return {};
  return call_error({call, __FILE__, __LINE__, {DeviceType::kCuda, index}}, "one device alone");
}

Result<void*> allocate_filled(size_t bytes, size_t alignment, int fill, const MemoryWish& wish) {
  void* data = nullptr;
  if (bytes > kMemoryBytes || posix_memalign(&data, alignment, bytes) != 0) {
    return out_of_memory(wish);
  }
  std::memset(data, fill, bytes);
  return data;
}

}  // namespace

int device_count() {
  return 1;
}

Result<DeviceInfo> describe(int index) {
  if (index != 0) {
    return not_found("[describe] a CUDA device below 1, got " + std::to_string(index));
  }
  return DeviceInfo{
      .name = "emulated", .memory_bytes = kMemoryBytes, .units = 1, .bus = "emulated"};
}

Result<DeviceMemory> memory_of(int index) {
  TRY(expect_device(index, "memory_of"));
  return DeviceMemory{.free_bytes = kMemoryBytes, .total_bytes = kMemoryBytes};
}

Result<PeerAccess> peer_access(int, int) {
  return PeerAccess{};
}

Result<void*> create_stream(int index) {
  TRY(expect_device(index, "create_stream"));
  return static_cast<void*>(new Handle);
}

void destroy_stream(void* stream) {
  delete static_cast<Handle*>(stream);
}

Status synchronize(int index, void*) {
  return expect_device(index, "synchronize");
}

Result<void*> create_event(int index, bool is_timed) {
  TRY(expect_device(index, "create_event"));
  return static_cast<void*>(new EventHandle{.is_timed = is_timed, .passed_at = {}});
}

void destroy_event(void* event) {
  delete static_cast<EventHandle*>(event);
}

Status record(int index, void* event, void*) {
  TRY(expect_device(index, "record"));
  event_of(event).passed_at = EventClock::now();
  return {};
}

Status delay(int index, void*, void*) {
  return expect_device(index, "delay");
}

Result<bool> passed(int index, void*) {
  TRY(expect_device(index, "passed"));
  return true;
}

Status synchronize_event(int index, void*) {
  return expect_device(index, "synchronize_event");
}

Result<double> elapsed(int index, const EventPair& events) {
  TRY(expect_device(index, "elapsed"));
  for (const void* event : {events.from, events.to}) {
    const auto& one = *static_cast<const EventHandle*>(event);
    if (one.is_timed && one.passed_at.has_value()) continue;
    return call_error({"elapsed", __FILE__, __LINE__, {DeviceType::kCuda, index}},
                      one.is_timed ? "an event that was never recorded" : "an event without time");
  }
  return std::chrono::duration<double>(*event_of(events.to).passed_at -
                                       *event_of(events.from).passed_at)
      .count();
}

Result<void*> allocate(int index, size_t bytes, std::string_view by) {
  TRY(expect_device(index, "allocate"));
  return allocate_filled(bytes, kAlignment, 0,
                         {.device = {DeviceType::kCuda, index},
                          .bytes = bytes,
                          .by = by,
                          .free_bytes = kMemoryBytes,
                          .total_bytes = kMemoryBytes});
}

void release(int, void* data) {
  std::free(data);
}

Result<void*> allocate_pinned(int index, size_t bytes, std::string_view by) {
  TRY(expect_device(index, "allocate_pinned"));
  return allocate_filled(bytes, 64, 0xFF, {.device = {}, .bytes = bytes, .by = by});
}

void release_pinned(void* data) {
  std::free(data);
}

Status copy(int index, void*, const CopyArgs& args) {
  TRY(expect_device(index, "copy"));
  if (args.to == nullptr || args.from == nullptr) {
    return call_error({"copy", __FILE__, __LINE__, {DeviceType::kCuda, index}}, "a null pointer");
  }
  std::memmove(args.to, args.from, args.bytes);
  return {};
}

}  // namespace lockstep::cuda_api
