// The twin of kernels/device/cuda/cuda_api.cc: emulated devices.
#include "kernels/device/cuda_api.h"

#include <string>

#include "kernels/device/device_words.h"
#include "tests/support/emulated_cuda/devices.h"
#include "tests/support/emulated_cuda/emulated_device.h"
#include "tests/support/emulated_cuda/memory_use.h"
#include "tests/support/emulated_cuda/pinned_memory.h"

namespace lockstep::cuda_api {

using emulated_cuda::device_at;
using emulated_cuda::EmulatedDevice;

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kPinnedAlignment = 64;
// As a small GPU's; what is asked for beyond it is refused as there.
constexpr uint64_t kMemoryBytes = uint64_t{4} << 30;

struct Handle {};

struct EventHandle {
  bool is_timed = false;
  std::optional<EventClock::time_point> passed_at;  // since the last record()
};

EventHandle& event_of(void* event) {
  return *static_cast<EventHandle*>(event);
}

// What a real device's twin calls first.
Status expect_device(int index) {
  if (index == 0) return {};
  return call_error({"cudaSetDevice(index)", __FILE__, __LINE__, {DeviceType::kCuda, index}},
                    "one device alone");
}

using emulated_cuda::MemoryKind;

Result<void*> allocate_filled(size_t bytes, MemoryKind kind, int fill, const MemoryWish& wish) {
  const size_t alignment = kind == MemoryKind::kDevice ? kAlignment : kPinnedAlignment;
  void* data = nullptr;
  if (bytes > kMemoryBytes || posix_memalign(&data, alignment, bytes) != 0) {
    return out_of_memory(wish);
  }
  std::memset(data, fill, bytes);
  emulated_cuda::note_allocation(data, bytes, kind);
  return data;
}

}  // namespace

int device_count() {
  return emulated_cuda::device_count();
}

Result<DeviceInfo> describe(int index) {
  if (!device_at(index, "describe").ok()) {
    return not_found("[describe] a CUDA device below " + std::to_string(device_count()) + ", got " +
                     std::to_string(index));
  }
  DeviceInfo info{.name = "emulated",
                  .memory_bytes = EmulatedDevice::kMemoryBytes,
                  .units = 1,
                  .bus = "emulated " + std::to_string(index)};
  info.uuid[0] = static_cast<uint8_t>(index);
  return info;
}

Result<DeviceMemory> memory_of(int index) {
  TRY(expect_device(index));
  return DeviceMemory{.free_bytes = kMemoryBytes, .total_bytes = kMemoryBytes};
}

Result<PeerAccess> peer_access(int, int) {
  return PeerAccess{};
}

Result<void*> create_stream(int index) {
  TRY(expect_device(index));
  return static_cast<void*>(new Handle);
}

void destroy_stream(void* stream) {
  owner_of(stream).destroy_stream(stream);
}

Status synchronize(int index, void*) {
  return expect_device(index);
}

Result<void*> create_event(int index, bool is_timed) {
  TRY(expect_device(index));
  return static_cast<void*>(new EventHandle{.is_timed = is_timed, .passed_at = {}});
}

void destroy_event(void* event) {
  owner_of(event).destroy_event(event);
}

Status record(int index, void* event, void*) {
  TRY(expect_device(index));
  event_of(event).passed_at = EventClock::now();
  return {};
}

Status delay(int index, void*, void*) {
  return expect_device(index);
}

Result<bool> passed(int index, void*) {
  TRY(expect_device(index));
  return true;
}

Status synchronize_event(int index, void*) {
  return expect_device(index);
}

Result<double> elapsed(int index, const EventPair& events) {
  TRY(expect_device(index));
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
  TRY(expect_device(index));
  return allocate_filled(bytes, kAlignment, 0,
                         {.device = {DeviceType::kCuda, index},
                          .bytes = bytes,
                          .by = by,
                          .free_bytes = kMemoryBytes,
                          .total_bytes = kMemoryBytes});
}

void release(int, void* data) {
  emulated_cuda::note_release(data);
  std::free(data);
}

Result<void*> allocate_pinned(int index, size_t bytes, std::string_view by) {
  TRY(expect_device(index));
  return allocate_filled(bytes, 64, 0xFF, {.device = {}, .bytes = bytes, .by = by});
}

void release_pinned(void* data) {
  emulated_cuda::note_release(data);
  std::free(data);
}

Status copy(int index, void*, const CopyArgs& args) {
  TRY(expect_device(index));
  if (args.to == nullptr || args.from == nullptr) {
    return call_error({"cudaMemcpyAsync", __FILE__, __LINE__, {DeviceType::kCuda, index}},
                      "a null pointer");
  }
  emulated_cuda::note_copy(args.to, args.from, args.bytes);
  std::memmove(args.to, args.from, args.bytes);
  return {};
}

}  // namespace lockstep::cuda_api
