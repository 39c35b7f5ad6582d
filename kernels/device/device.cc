#include "kernels/device/device.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "kernels/device/cuda_api.h"

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

uint64_t machine_memory_bytes() {
  struct sysinfo info = {};
  if (sysinfo(&info) != 0) return 0;
  return static_cast<uint64_t>(info.totalram) * info.mem_unit;
}

Result<void*> allocate_host(size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) {
    return unavailable("[Buffer] " + std::to_string(bytes) + " bytes of memory, none left");
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
                    .memory_bytes = machine_memory_bytes(),
                    .units = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))};
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
  return cuda_api::synchronize(handle_);
}

Result<Buffer> Buffer::allocate(Device device, size_t bytes) {
  Buffer buffer;
  buffer.device_ = device;
  if (bytes == 0) return buffer;
  TRY_ASSIGN(buffer.data_, device.type == DeviceType::kCpu
                               ? allocate_host(bytes)
                               : cuda_api::allocate(device.index, bytes));
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

Status copy_bytes(Stream& stream, const CopyArgs& args) {
  if (args.bytes == 0) return {};
  if (stream.device().type == DeviceType::kCuda) return cuda_api::copy(stream.handle(), args);
  std::memcpy(args.to, args.from, args.bytes);
  return {};
}

}  // namespace lockstep
