#include "kernels/device/device.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "kernels/device/cuda_api.h"
#include "kernels/device/device_words.h"

namespace lockstep {

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
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) {
    const DeviceMemory memory = machine_memory();
    return out_of_memory({.device = {},
                          .bytes = bytes,
                          .by = by,
                          .free_bytes = memory.free_bytes,
                          .total_bytes = memory.total_bytes});
  }
  std::memset(data, 0, rounded);
  return data;
}

}  // namespace

int device_count(DeviceType type) {
  return type == DeviceType::kCpu ? 1 : cuda_api::device_count();
}

Result<DeviceInfo> describe(Device device) {
  if (device.type == DeviceType::kCuda) return cuda_api::describe(device.index);
  if (device.index != 0) return not_found("[describe] CPU 0, got " + std::to_string(device.index));
  return DeviceInfo{.name = cpu_name(),
                    .memory_bytes = machine_memory().total_bytes,
                    .units = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))};
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
  stream.device_ = device;
  if (device.type == DeviceType::kCuda) {
    TRY_ASSIGN(stream.handle_, cuda_api::create_stream(device.index));
  }
  return stream;
}

Stream::Stream(Stream&& other) noexcept
    : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

Stream::~Stream() {
  if (handle_ != nullptr) cuda_api::destroy_stream(handle_);
}

Status Stream::synchronize() {
  if (device_.type == DeviceType::kCpu) return {};
  return cuda_api::synchronize(device_.index, handle_);
}

Result<Event> Event::create(Device device) {
  Event event;
  event.device_ = device;
  if (device.type == DeviceType::kCuda) {
    TRY_ASSIGN(event.handle_, cuda_api::create_event(device.index));
  }
  return event;
}

Event::Event(Event&& other) noexcept
    : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

Event::~Event() {
  if (handle_ != nullptr) cuda_api::destroy_event(handle_);
}

Status Event::record(void* stream) {
  if (handle_ == nullptr) return {};
  return cuda_api::record(device_.index, handle_, stream);
}

Status Event::delay(void* stream) const {
  if (handle_ == nullptr) return {};
  return cuda_api::delay(device_.index, handle_, stream);
}

Result<bool> Event::passed() const {
  if (handle_ == nullptr) return true;
  return cuda_api::passed(device_.index, handle_);
}

Status Event::synchronize() const {
  if (handle_ == nullptr) return {};
  return cuda_api::synchronize_event(device_.index, handle_);
}

Result<Buffer> Buffer::allocate(Device device, size_t bytes, std::string_view by) {
  Buffer buffer;
  buffer.device_ = device;
  if (bytes == 0) return buffer;
  TRY_ASSIGN(buffer.data_, device.type == DeviceType::kCpu
                               ? allocate_host(bytes, by)
                               : cuda_api::allocate(device.index, bytes, by));
  buffer.bytes_ = bytes;
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_),
      bytes_(std::exchange(other.bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (device_.type == DeviceType::kCpu) {
    std::free(data_);
  } else {
    cuda_api::release(device_.index, data_);
  }
}

Result<PinnedBuffer> PinnedBuffer::allocate(Device device, size_t bytes, std::string_view by) {
  PinnedBuffer buffer;
  buffer.device_ = device;
  if (bytes == 0) return buffer;
  TRY_ASSIGN(buffer.data_, device.type == DeviceType::kCpu
                               ? allocate_host(bytes, by)
                               : cuda_api::allocate_pinned(device.index, bytes, by));
  buffer.bytes_ = bytes;
  return buffer;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : device_(other.device_),
      bytes_(std::exchange(other.bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ == nullptr) return;
  if (device_.type == DeviceType::kCpu) {
    std::free(data_);
  } else {
    cuda_api::release_pinned(data_);
  }
}

Status copy_bytes(Stream& stream, const CopyArgs& args) {
  return copy_bytes(stream.device(), stream.handle(), args);
}

Status copy_bytes(Device device, void* stream, const CopyArgs& args) {
  if (args.bytes == 0) return {};
  if (device.type == DeviceType::kCuda) return cuda_api::copy(device.index, stream, args);
  std::memcpy(args.to, args.from, args.bytes);
  return {};
}

}  // namespace lockstep
