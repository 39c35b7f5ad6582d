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

namespace lockstep::kernels {

enum class DeviceType : uint8_t { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

struct DeviceInfo {
  std::string name;                // "AMD EPYC ...", "NVIDIA H200"
  uint64_t memory_bytes = 0;       // of the device; for the CPU, of the machine
  std::string bus;                 // "0000:41:00.0"; empty for the CPU
  std::array<uint8_t, 16> uuid{};  // of the GPU or of its MIG instance
};

// Returns the number of devices of that type this process can use; 0 CUDA devices in a build
// without CUDA.
int device_count(DeviceType type);
// kUnavailable without CUDA, kNotFound for an index that does not exist. Errors blame the device.
Result<DeviceInfo> describe(Device device);

struct DeviceMemory {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};
// Returns what the system reports; zeros if it reports nothing for the CPU. kUnavailable without
// CUDA.
Result<DeviceMemory> memory_of(Device device);

struct PeerAccess {
  bool can_access = false;      // each can read and write the other's memory
  bool native_atomics = false;  // atomics work over the link: yes for NVLink, no for PCIe
};
// Describes a pair of CUDA devices. kUnavailable without CUDA.
Result<PeerAccess> peer_access(int from, int to);

// The deleter of any handle a device gave out. A moved-from handle is empty but keeps its device.
struct DeviceRelease {
  Device device;
  void (*release)(Device device, void* handle) = nullptr;
  void operator()(void* handle) const { release(device, handle); }
};
using DeviceHandle = std::unique_ptr<void, DeviceRelease>;

// A queue of operations on one device. One thread at a time issues operations. On the CPU they are
// complete when the call returns; on CUDA they run later, in order. synchronize() reports errors of
// the operations. Move-only, owns its handle.
//
// Waiting for a CUDA device blocks the thread; by default CUDA would spin. A step waits once, for
// tens of milliseconds or more. Meanwhile data loading, collectives through host memory and NCCL's
// threads need the CPUs; a pod may have few and is throttled for time it burns. Waking costs tens
// of microseconds. Source: cudaDeviceScheduleBlockingSync, CUDA Runtime API, "Device Management".
class Stream {
 public:
  // The CPU's stream; cannot fail.
  Stream() = default;
  // kUnavailable if the device is not available.
  static Result<Stream> create(Device device);

  Device device() const { return handle_.get_deleter().device; }
  // Returns a cudaStream_t on CUDA, null on the CPU.
  void* handle() const { return handle_.get(); }
  // Blocks until all issued operations are complete, and returns the first failure.
  Status synchronize();
  // For operations that return nothing: the next synchronize() returns the first error passed here.
  void fail(Error error);
  // Returns the first of the recorded failures and `error`, which a call on the stream returned,
  // and clears the recorded failure.
  Error first_failure(Error error);

 private:
  DeviceHandle handle_;
  std::optional<Error> failure_;
};

// A point in the order of a stream of this device. Streams are passed by handle, so that streams
// owned by others work too. On the CPU, where operations complete immediately, every event has
// passed. Move-only, owns its handle. Thread-safe except record().
class Event {
 public:
  // The CPU's event; cannot fail.
  Event() = default;
  // kUnavailable if the device is not available.
  static Result<Event> create(Device device);
  // Creates an event that records the time at which it passes.
  static Result<Event> create_timed(Device device);

  Device device() const { return handle_.get_deleter().device; }
  // Makes the event pass when all work issued on the stream so far is complete.
  Status record(void* stream);
  // Makes all work issued on that stream from now on wait for this event.
  Status make_stream_wait(void* stream) const;
  // Returns whether the event has passed; true before the first record().
  Result<bool> passed() const;
  // Blocks until the event has passed.
  Status synchronize() const;
  // Returns device time from this event to a later one, in seconds. kUnavailable unless both events
  // are timed events of the same CUDA device, recorded and passed. CPU events keep no time.
  Result<double> seconds_until(const Event& later) const;

 private:
  static Result<Event> create(Device device, bool is_timed);

  DeviceHandle handle_;
};

// Uninterpreted zeroed device memory, aligned to 64 bytes (256 on CUDA). Move-only, owner.
// Synchronize the streams that use a buffer before freeing it.
class Buffer {
 public:
  Buffer() = default;
  // kUnavailable if the device is not available or out of memory. The error names the requested
  // size, its purpose (`by`) and what would fit. 0 bytes give an empty buffer.
  static Result<Buffer> allocate(Device device, size_t bytes, std::string_view by = "a buffer");

  size_t bytes() const { return handle_ == nullptr ? 0 : bytes_; }
  void* data() const { return handle_.get(); }
  float* f32() const { return static_cast<float*>(data()); }
  Workspace workspace() const { return {data(), bytes()}; }

 private:
  DeviceHandle handle_;
  size_t bytes_ = 0;  // valid only while there is a handle
};

// Page-locked host memory, which the device accesses directly. Aligned to 64 bytes, uninitialized.
// Ordinary memory for the CPU. Move-only, owner. Synchronize the streams that use a buffer before
// freeing it.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // Same errors as Buffer::allocate().
  static Result<PinnedBuffer> allocate(Device device, size_t bytes,
                                       std::string_view by = "a pinned buffer");

  size_t bytes() const { return handle_ == nullptr ? 0 : bytes_; }
  void* data() const { return handle_.get(); }

 private:
  DeviceHandle handle_;
  size_t bytes_ = 0;  // valid only while there is a handle
};

struct CopyArgs {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

// Copies between host and the stream's device, or within the device, in stream order. On CUDA the
// host side should be pinned, and may be reused after synchronize(). If the copy fails after an
// earlier operation failed, returns the earlier error, as synchronize() does: after a kernel fault
// every later call fails.
Status copy_bytes(Stream& stream, const CopyArgs& args);
// The same on a stream given by its handle, without the stream's earlier errors.
Status copy_bytes(Device device, void* stream, const CopyArgs& args);

}  // namespace lockstep::kernels
