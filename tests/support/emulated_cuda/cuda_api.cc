// The twin of kernels/device/cuda/cuda_api.cc: emulated devices.
#include "kernels/device/cuda_api.h"

#include <string>

#include "kernels/device/device_words.h"
#include "tests/support/emulated_cuda/memory_use.h"

namespace lockstep::cuda_api {

using emulated_cuda::device_at;
using emulated_cuda::EmulatedDevice;

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kPinnedAlignment = 64;
// As a small GPU's; what is asked for beyond it is refused as there.
constexpr uint64_t kMemoryBytes = uint64_t{4} << 30;

struct Handle {};

Status expect_device(int index, const char* call) {
  if (index == 0) return {};
  return call_error({call, __FILE__, __LINE__, {DeviceType::kCuda, index}}, "one device alone");
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
  TRY_ASSIGN(EmulatedDevice* const device, device_at(index, "memory_of"));
  return device->memory();
}

Result<PeerAccess> peer_access(int, int) {
  return PeerAccess{};
}

Result<void*> create_stream(int index) {
  TRY_ASSIGN(EmulatedDevice* const device, device_at(index, "create_stream"));
  return device->create_stream();
}

void destroy_stream(void* stream) {
  owner_of(stream).destroy_stream(stream);
}

Status synchronize(int index, void* stream) {
  TRY_ASSIGN(EmulatedDevice* const device, device_at(index, "synchronize"));
  return device->synchronize(stream);
}

Result<void*> create_event(int index, bool is_timed) {
  TRY_ASSIGN(EmulatedDevice* const device, device_at(index, "create_event"));
  return device->create_event(is_timed);
}

void destroy_event(void* event) {
  owner_of(event).destroy_event(event);
}

Status record(int index, void* event, void* stream) {
  TRY_ASSIGN(EmulatedDevice* const device, device_at(index, "record"));
  return device->record(event, stream);
}

Status delay(int index, void* event, void* stream) {
  TRY_ASSIGN(EmulatedDevice* const device, device_at(index, "delay"));
  return device->delay(event, stream);
}

Result<bool> passed(int index, void* event) {
  TRY_ASSIGN(EmulatedDevice* const device, device_at(index, "passed"));
  return device->passed(event);
}

Status synchronize_event(int index, void* event) {
  TRY_ASSIGN(EmulatedDevice* const device, device_at(index, "synchronize_event"));
  return device->synchronize_event(event);
}

Result<double> elapsed(int index, const EventPair& events) {
  TRY_ASSIGN(EmulatedDevice* const device, device_at(index, "elapsed"));
  return device->elapsed(events);
}

Result<void*> allocate(int index, size_t bytes, std::string_view by) {
  TRY(expect_device(index, "allocate"));
  return allocate_filled(bytes, MemoryKind::kDevice, 0,
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
  TRY(expect_device(index, "allocate_pinned"));
  return allocate_filled(bytes, MemoryKind::kPinned, 0xFF,
                         {.device = {}, .bytes = bytes, .by = by});
}

void release_pinned(void* data) {
  emulated_cuda::note_release(data);
  std::free(data);
}

Status copy(int index, void*, const CopyArgs& args) {
  TRY(expect_device(index, "copy"));
  if (args.to == nullptr || args.from == nullptr) {
    return call_error({"copy", __FILE__, __LINE__, {DeviceType::kCuda, index}}, "a null pointer");
  }
  emulated_cuda::note_copy(args.to, args.from, args.bytes);
  std::memmove(args.to, args.from, args.bytes);
  return {};
}

}  // namespace lockstep::cuda_api
