#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "kernels/device/dtype.h"

namespace lockstep {

enum class DeviceType : uint8_t { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

struct DeviceInfo {
  std::string name;           // "AMD EPYC ...", "NVIDIA H200"
  uint64_t memory_bytes = 0;  // of the device; for the CPU that of the machine
  int units = 0;              // multiprocessors; for the CPU hardware threads
};

// Devices of that type that this process can use. Without CUDA there are none.
int device_count(DeviceType type);
// kUnavailable without CUDA, kNotFound for an index that is not there.
Result<DeviceInfo> describe(Device device);

// An order of operations on one device. Operations are issued by one thread at a time; on the CPU
// they are done when the call returns, on CUDA they run later and in order. What fails in an
// operation is reported by synchronize(). Move-only, owns its handle.
class Stream {
 public:
  // The CPU's stream, which cannot fail.
  Stream() = default;
  // kUnavailable where the device is not.
  static Result<Stream> create(Device device);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  Device device() const { return device_; }
  // cudaStream_t on CUDA, null on the CPU.
  void* handle() const { return handle_; }
  // Waits until all that was issued is done.
  Status synchronize();

 private:
  Device device_;
  void* handle_ = nullptr;
};

// Uninterpreted memory of a device, zeroed, aligned to 64 bytes (256 on CUDA). Move-only, owner.
// Whoever frees it must have synchronised the streams that use it.
class Buffer {
 public:
  Buffer() = default;
  // kUnavailable where the device is not or its memory is used up. 0 bytes give an empty buffer.
  static Result<Buffer> allocate(Device device, size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  Device device() const { return device_; }
  size_t bytes() const { return bytes_; }
  void* data() const { return data_; }
  float* f32() const { return static_cast<float*>(data_); }
  Workspace workspace() const { return {data_, bytes_}; }

 private:
  Device device_;
  size_t bytes_ = 0;
  void* data_ = nullptr;
};

struct CopyArgs {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

// Copies between host and the stream's device, or within it, in the stream's order. On CUDA the
// host side should be pinned, and may be reused after synchronize().
Status copy_bytes(Stream& stream, const CopyArgs& args);

}  // namespace lockstep
