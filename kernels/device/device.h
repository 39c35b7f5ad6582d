#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
  std::string name;                // "AMD EPYC ...", "NVIDIA H200"
  uint64_t memory_bytes = 0;       // of the device; for the CPU that of the machine
  int units = 0;                   // multiprocessors; for the CPU hardware threads
  std::string bus;                 // "0000:41:00.0"; empty for the CPU
  std::array<uint8_t, 16> uuid{};  // of the GPU, or of the part of it that is given as one
};

// Devices of that type that this process can use. Without CUDA there are none.
int device_count(DeviceType type);
// kUnavailable without CUDA, kNotFound for an index that is not there.
Result<DeviceInfo> describe(Device device);

struct DeviceMemory {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};
// As far as the system says it. kUnavailable without CUDA.
Result<DeviceMemory> memory_of(Device device);

struct PeerAccess {
  bool can_access = false;      // one can read and write the other's memory
  bool native_atomics = false;  // and over its link atomically, as NVLink can and PCIe can't
};
// Of two CUDA devices. kUnavailable without CUDA.
Result<PeerAccess> peer_access(int from, int to);

// What a device gave, of whatever kind, and how it is given back when its owner goes. Who was moved
// from has none, of the same device.
struct DeviceRelease {
  Device device;
  void (*release)(Device device, void* handle) = nullptr;
  void operator()(void* handle) const { release(device, handle); }
};
using DeviceHandle = std::unique_ptr<void, DeviceRelease>;

// An order of operations on one device. Operations are issued by one thread at a time; on the CPU
// they are done when the call returns, on CUDA they run later and in order. What fails in an
// operation is reported by synchronize(). Move-only, owns its handle.
//
// Who waits for a CUDA device sleeps; CUDA's default would keep a CPU busy asking. A step is waited
// for once, for tens of milliseconds or more, while loading data, collectives by way of host memory
// and NCCL's threads need the CPUs, of which a pod may have few and is throttled for those it
// burns; to wake costs some tens of microseconds. Source: cudaDeviceScheduleBlockingSync, CUDA
// Runtime API, "Device Management".
class Stream {
 public:
  // The CPU's stream, which cannot fail.
  Stream() = default;
  // kUnavailable where the device is not.
  static Result<Stream> create(Device device);

  Device device() const { return handle_.get_deleter().device; }
  // cudaStream_t on CUDA, null on the CPU.
  void* handle() const { return handle_.get(); }
  // Waits until all that was issued is done, and tells what failed in it.
  Status synchronize();
  // For operations, which return nothing: the next synchronize() returns the first of these.
  void fail(Error error);
  // Of these and `error`, which a call on the stream gave: the first; synchronize() has none then.
  Error first_failure(Error error);

 private:
  DeviceHandle handle_;
  std::optional<Error> failure_;
};

// A point in the order of a stream of this device. Streams are given by their handle, so that those
// of other owners serve too; on the CPU, where all is done when a call returns, every event has
// passed. Move-only, owns its handle. Thread-safe but for record().
class Event {
 public:
  // The CPU's event, which cannot fail.
  Event() = default;
  // kUnavailable where the device is not.
  static Result<Event> create(Device device);
  // One that keeps the time at which it passes.
  static Result<Event> create_timed(Device device);

  Device device() const { return handle_.get_deleter().device; }
  // It passes when all that was issued on the stream until now is done.
  Status record(void* stream);
  // What is issued on that stream from now on runs after it has passed.
  Status delay(void* stream) const;
  // Whether it has passed; true before the first record().
  Result<bool> passed() const;
  // Waits until it has.
  Status synchronize() const;
  // Seconds of the device from this event to a later one. kUnavailable unless both are timed, of
  // this CUDA device, recorded and passed; the CPU's keep no time.
  Result<double> seconds_until(const Event& later) const;

 private:
  static Result<Event> create(Device device, bool is_timed);

  DeviceHandle handle_;
};

// Uninterpreted memory of a device, zeroed, aligned to 64 bytes (256 on CUDA). Move-only, owner.
// Whoever frees it must have synchronised the streams that use it.
class Buffer {
 public:
  Buffer() = default;
  // kUnavailable where the device is not or its memory is used up: the error says how much was
  // asked for, for what (`by`), and what would fit. 0 bytes give an empty buffer.
  static Result<Buffer> allocate(Device device, size_t bytes, std::string_view by = "a buffer");

  Device device() const { return handle_.get_deleter().device; }
  size_t bytes() const { return handle_ == nullptr ? 0 : bytes_; }
  void* data() const { return handle_.get(); }
  float* f32() const { return static_cast<float*>(data()); }
  Workspace workspace() const { return {data(), bytes()}; }

 private:
  DeviceHandle handle_;
  size_t bytes_ = 0;  // as long as there is a handle
};

// Memory of the host that the device copies from and to by itself (page-locked), aligned to 64
// bytes, of unknown content; for the CPU ordinary memory. Move-only, owner. Whoever frees it must
// have synchronised the streams that use it.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // Errors as Buffer's.
  static Result<PinnedBuffer> allocate(Device device, size_t bytes,
                                       std::string_view by = "a pinned buffer");

  Device device() const { return handle_.get_deleter().device; }
  size_t bytes() const { return handle_ == nullptr ? 0 : bytes_; }
  void* data() const { return handle_.get(); }

 private:
  DeviceHandle handle_;
  size_t bytes_ = 0;  // as long as there is a handle
};

struct CopyArgs {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

// Copies between host and the stream's device, or within it, in the stream's order. On CUDA the
// host side should be pinned, and may be reused after synchronize(). Where it fails, what failed in
// an operation before is told in its stead, as by synchronize(): a kernel's fault makes every later
// call fail.
Status copy_bytes(Stream& stream, const CopyArgs& args);
// The same on a stream given by its handle.
Status copy_bytes(Device device, void* stream, const CopyArgs& args);

}  // namespace lockstep
