// Implements kernels/device/cuda_api.h with emulated devices.
#include "kernels/device/cuda_api.h"

#include <string>

#include "kernels/device/device_errors.h"
#include "tests/support/emulated_cuda/devices.h"
#include "tests/support/emulated_cuda/emulated_device.h"
#include "tests/support/emulated_cuda/memory_use.h"
#include "tests/support/emulated_cuda/pinned_memory.h"

namespace lockstep::kernels::cuda_api {

using emulated_cuda::device_at;
using emulated_cuda::EmulatedDevice;
using emulated_cuda::MemoryKind;

namespace {

Result<emulated_cuda::EmulatedDevice*> device_of(int index) {
  Result<emulated_cuda::EmulatedDevice*> device = emulated_cuda::device_at(index);
  if (device.ok()) return device;
  // The call that fails first on a real device.
  return call_error({"cudaSetDevice(index)", __FILE__, __LINE__, {DeviceType::kCuda, index}},
                    device.error().message);
}

// Returns the device of a stream or an event.
emulated_cuda::EmulatedDevice& owner_of(void* handle) {
  return *emulated_cuda::device_at(emulated_cuda::index_of_handle(handle)).value();
}

}  // namespace

int device_count() {
  return emulated_cuda::device_count();
}

Result<DeviceInfo> describe(int index) {
  if (!device_of(index).ok()) {
    return not_found("[describe] expected a CUDA device index below " +
                     std::to_string(device_count()) + ", got " + std::to_string(index));
  }
  DeviceInfo info{.name = "emulated",
                  .memory_bytes = emulated_cuda::EmulatedDevice::kMemoryBytes,
                  .bus = "emulated " + std::to_string(index)};
  info.uuid[0] = static_cast<uint8_t>(index);
  return info;
}

Result<DeviceMemory> memory_of(int index) {
  TRY_ASSIGN(emulated_cuda::EmulatedDevice* const device, device_of(index));
  return device->memory();
}

Result<PeerAccess> peer_access(int, int) {
  return PeerAccess{};
}

Result<void*> create_stream(int index) {
  TRY_ASSIGN(emulated_cuda::EmulatedDevice* const device, device_of(index));
  return device->create_stream();
}

void destroy_stream(void* stream) {
  owner_of(stream).destroy_stream(stream);
}

Status synchronize(int index, void* stream) {
  TRY_ASSIGN(emulated_cuda::EmulatedDevice* const device, device_of(index));
  return device->synchronize(stream);
}

Result<void*> create_event(int index, bool is_timed) {
  TRY_ASSIGN(emulated_cuda::EmulatedDevice* const device, device_of(index));
  return device->create_event(is_timed);
}

void destroy_event(void* event) {
  owner_of(event).destroy_event(event);
}

Status record(int index, void* event, void* stream) {
  TRY_ASSIGN(emulated_cuda::EmulatedDevice* const device, device_of(index));
  return device->record(event, stream);
}

Status stream_wait_event(int index, void* event, void* stream) {
  TRY_ASSIGN(emulated_cuda::EmulatedDevice* const device, device_of(index));
  return device->stream_wait_event(event, stream);
}

Result<bool> passed(int index, void* event) {
  TRY_ASSIGN(emulated_cuda::EmulatedDevice* const device, device_of(index));
  return device->passed(event);
}

Status synchronize_event(int index, void* event) {
  TRY_ASSIGN(emulated_cuda::EmulatedDevice* const device, device_of(index));
  return device->synchronize_event(event);
}

Result<double> elapsed(int index, const EventPair& events) {
  TRY_ASSIGN(emulated_cuda::EmulatedDevice* const device, device_of(index));
  return device->elapsed(events);
}

Result<void*> allocate(int index, size_t bytes, std::string_view by) {
  TRY_ASSIGN(emulated_cuda::EmulatedDevice* const device, device_of(index));
  TRY_ASSIGN(void* const data, device->allocate(bytes, by));
  emulated_cuda::note_allocation(data, bytes, emulated_cuda::MemoryKind::kDevice);
  return data;
}

void release(int index, void* data) {
  emulated_cuda::note_release(data);
  device_of(index).value()->release(data);
}

Result<void*> allocate_pinned(int index, size_t bytes, std::string_view by) {
  TRY(device_of(index));
  void* data = emulated_cuda::allocate_pinned(bytes);
  if (data == nullptr) return out_of_memory({.device = {}, .bytes = bytes, .by = by});
  emulated_cuda::note_allocation(data, bytes, emulated_cuda::MemoryKind::kPinned);
  return data;
}

void release_pinned(void* data) {
  emulated_cuda::note_release(data);
  emulated_cuda::release_pinned(data);
}

Status pin(int index, const Workspace& memory, std::string_view) {
  TRY(device_of(index));
  if (!emulated_cuda::pin(memory.data, memory.bytes)) {
    return call_error({"cudaHostRegister", __FILE__, __LINE__, {DeviceType::kCuda, index}},
                      "the memory is registered already");
  }
  emulated_cuda::note_allocation(memory.data, memory.bytes, emulated_cuda::MemoryKind::kPinned);
  return {};
}

void unpin(void* data) {
  emulated_cuda::note_release(data);
  emulated_cuda::unpin(data);
}

Status copy(int index, void* stream, const CopyArgs& args) {
  TRY_ASSIGN(emulated_cuda::EmulatedDevice* const device, device_of(index));
  if (args.to == nullptr || args.from == nullptr) {
    return call_error({"cudaMemcpyAsync", __FILE__, __LINE__, {DeviceType::kCuda, index}},
                      "a null pointer");
  }
  TRY(device->copy(stream, args));
  emulated_cuda::note_copy(args.to, args.from, args.bytes);
  return {};
}

}  // namespace lockstep::kernels::cuda_api
