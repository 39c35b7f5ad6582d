#include "kernels/device/device.h"

#include <sys/sysinfo.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "kernels/device/cuda_api.h"
#include "kernels/device/device_errors.h"

namespace lockstep::kernels {

namespace {

constexpr size_t kAlignment = 64;

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

DeviceMemory machine_memory() {
  struct sysinfo info = {};
  if (sysinfo(&info) != 0) return {};
  return {.free_bytes = static_cast<uint64_t>(info.freeram) * info.mem_unit,
          .total_bytes = static_cast<uint64_t>(info.totalram) * info.mem_unit};
}

Result<void*> allocate_host(size_t bytes, std::string_view by) {
  void* data = nullptr;
  // Exactly this size, so that the address sanitizer detects accesses past the end.
  if (posix_memalign(&data, kAlignment, bytes) != 0) {
    const DeviceMemory memory = machine_memory();
    return out_of_memory({.device = {},
                          .bytes = bytes,
                          .by = by,
                          .free_bytes = memory.free_bytes,
                          .total_bytes = memory.total_bytes});
  }
  std::memset(data, 0, bytes);
  return data;
}

void release_host(Device, void* data) {
  std::free(data);
}
void release_cuda(Device device, void* data) {
  cuda_api::release(device.index, data);
}
void release_pinned(Device, void* data) {
  cuda_api::release_pinned(data);
}
void release_stream(Device, void* handle) {
  cuda_api::destroy_stream(handle);
}
void release_event(Device, void* handle) {
  cuda_api::destroy_event(handle);
}

}  // namespace

int device_count(DeviceType type) {
  return type == DeviceType::kCpu ? 1 : cuda_api::device_count();
}

Result<DeviceInfo> describe(Device device) {
  if (device.type == DeviceType::kCuda) {
    Result<DeviceInfo> info = cuda_api::describe(device.index);
    return info.ok() ? info : info.error().blaming(Blame::kDevice);
  }
  if (device.index != 0) {
    return not_found("[describe] CPU 0, got " + std::to_string(device.index), Blame::kDevice);
  }
  return DeviceInfo{.name = cpu_name(), .memory_bytes = machine_memory().total_bytes};
}

Result<DeviceMemory> memory_of(Device device) {
  if (device.type == DeviceType::kCuda) return cuda_api::memory_of(device.index);
  return machine_memory();
}

Result<PeerAccess> peer_access(int from, int to) {
  return cuda_api::peer_access(from, to);
}

Result<Stream> Stream::create(Device device) {
  Stream stream;
  void* handle = nullptr;
  if (device.type == DeviceType::kCuda) {
    TRY_ASSIGN(handle, cuda_api::create_stream(device.index));
  }
  stream.handle_ = DeviceHandle(handle, {device, release_stream});
  return stream;
}

Status Stream::synchronize() {
  Status waited;
  if (device().type == DeviceType::kCuda) waited = cuda_api::synchronize(device().index, handle());
  if (!failure_) return waited;
  return *std::exchange(failure_, std::nullopt);
}

void Stream::fail(Error error) {
  if (!failure_) failure_ = std::move(error);
}

Error Stream::first_failure(Error error) {
  fail(std::move(error));
  return *std::exchange(failure_, std::nullopt);
}

Result<Event> Event::create(Device device) {
  return create(device, false);
}

Result<Event> Event::create_timed(Device device) {
  return create(device, true);
}

Result<Event> Event::create(Device device, bool is_timed) {
  Event event;
  void* handle = nullptr;
  if (device.type == DeviceType::kCuda) {
    TRY_ASSIGN(handle, cuda_api::create_event(device.index, is_timed));
  }
  event.handle_ = DeviceHandle(handle, {device, release_event});
  return event;
}

Status Event::record(void* stream) {
  if (handle_ == nullptr) return {};
  return cuda_api::record(device().index, handle_.get(), stream);
}

Status Event::make_stream_wait(void* stream) const {
  if (handle_ == nullptr) return {};
  return cuda_api::stream_wait_event(device().index, handle_.get(), stream);
}

Result<bool> Event::passed() const {
  if (handle_ == nullptr) return true;
  return cuda_api::passed(device().index, handle_.get());
}

Status Event::synchronize() const {
  if (handle_ == nullptr) return {};
  return cuda_api::synchronize_event(device().index, handle_.get());
}

Result<double> Event::seconds_until(const Event& later) const {
  if (handle_ == nullptr || later.handle_ == nullptr) {
    return unavailable("[event] timing needs CUDA events; CPU events have no timestamps");
  }
  return cuda_api::elapsed(device().index, {.from = handle_.get(), .to = later.handle_.get()});
}

Result<Buffer> Buffer::allocate(Device device, size_t bytes, std::string_view by) {
  Buffer buffer;
  const bool is_cpu = device.type == DeviceType::kCpu;
  void* data = nullptr;
  if (bytes > 0) {
    TRY_ASSIGN(data,
               is_cpu ? allocate_host(bytes, by) : cuda_api::allocate(device.index, bytes, by));
  }
  buffer.handle_ = DeviceHandle(data, {device, is_cpu ? release_host : release_cuda});
  buffer.bytes_ = bytes;
  return buffer;
}

Result<PinnedBuffer> PinnedBuffer::allocate(Device device, size_t bytes, std::string_view by) {
  PinnedBuffer buffer;
  const bool is_cpu = device.type == DeviceType::kCpu;
  void* data = nullptr;
  if (bytes > 0) {
    TRY_ASSIGN(data, is_cpu ? allocate_host(bytes, by)
                            : cuda_api::allocate_pinned(device.index, bytes, by));
  }
  buffer.handle_ = DeviceHandle(data, {device, is_cpu ? release_host : release_pinned});
  buffer.bytes_ = bytes;
  return buffer;
}

Status copy_bytes(Stream& stream, const CopyArgs& args) {
  const Status copied = copy_bytes(stream.device(), stream.handle(), args);
  return copied.ok() ? copied : stream.first_failure(copied.error());
}

Status copy_bytes(Device device, void* stream, const CopyArgs& args) {
  if (args.bytes == 0) return {};
  if (device.type == DeviceType::kCuda) return cuda_api::copy(device.index, stream, args);
  std::memcpy(args.to, args.from, args.bytes);
  return {};
}

}  // namespace lockstep::kernels
