#include "kernels/device/cuda_api.h"

#include <cstring>

#include "kernels/device/cuda/cuda_call.h"

namespace lockstep::kernels::cuda_api {

namespace {

cudaStream_t stream_of(void* handle) {
  return static_cast<cudaStream_t>(handle);
}

cudaEvent_t event_of(void* handle) {
  return static_cast<cudaEvent_t>(handle);
}

Error allocation_error(int index, size_t bytes, std::string_view by) {
  static_cast<void>(cudaGetLastError());
  FailedAllocation failed{.device = {DeviceType::kCuda, index}, .bytes = bytes, .by = by};
  if (const Result<DeviceMemory> memory = memory_of(index); memory.ok()) {
    failed.free_bytes = memory->free_bytes;
    failed.total_bytes = memory->total_bytes;
  }
  return out_of_memory(failed);
}

}  // namespace

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// Reports an unusable driver as an error, not as a machine without devices.
Result<DeviceInfo> describe(int index) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorNoDevice) {
    static_cast<void>(cudaGetLastError());
    count = 0;
  } else {
    TRY_CUDA_CODE(index, "cudaGetDeviceCount", counted);
  }
  if (index < 0 || index >= count) {
    return not_found("[describe] expected a CUDA device index below " + std::to_string(count) +
                     ", got " + std::to_string(index));
  }
  cudaDeviceProp properties = {};
  TRY_CUDA(index, cudaGetDeviceProperties(&properties, index));
  char bus[32] = "";
  TRY_CUDA(index, cudaDeviceGetPCIBusId(bus, sizeof bus, index));
  DeviceInfo info{.name = properties.name, .memory_bytes = properties.totalGlobalMem, .bus = bus};
  static_assert(sizeof info.uuid == sizeof properties.uuid);
  std::memcpy(info.uuid.data(), &properties.uuid, info.uuid.size());
  return info;
}

Result<DeviceMemory> memory_of(int index) {
  TRY_CUDA(index, cudaSetDevice(index));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  TRY_CUDA(index, cudaMemGetInfo(&free_bytes, &total_bytes));
  return DeviceMemory{.free_bytes = free_bytes, .total_bytes = total_bytes};
}

Result<PeerAccess> peer_access(int from, int to) {
  int can_access = 0;
  TRY_CUDA(from, cudaDeviceCanAccessPeer(&can_access, from, to));
  int atomics = 0;
  if (can_access != 0) {
    TRY_CUDA(from,
             cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to));
  }
  return PeerAccess{.can_access = can_access != 0, .native_atomics = atomics != 0};
}

Result<void*> create_stream(int index) {
  TRY_CUDA(index, cudaSetDevice(index));
  // Sets the flags even if something used the device before: this call overwrites them, for all
  // waits on the device.
  TRY_CUDA(index, cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
  cudaStream_t stream = nullptr;
  TRY_CUDA(index, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return static_cast<void*>(stream);
}

void destroy_stream(void* stream) {
  cudaStreamDestroy(stream_of(stream));
}

Status synchronize(int index, void* stream) {
  TRY_CUDA(index, cudaStreamSynchronize(stream_of(stream)));
  return {};
}

Result<void*> create_event(int index, bool is_timed) {
  TRY_CUDA(index, cudaSetDevice(index));
  cudaEvent_t event = nullptr;
  const unsigned flags = is_timed ? cudaEventDefault : cudaEventDisableTiming;
  TRY_CUDA(index, cudaEventCreateWithFlags(&event, flags));
  return static_cast<void*>(event);
}

void destroy_event(void* event) {
  cudaEventDestroy(event_of(event));
}

// A null stream means the current device's default stream, so the device must be set first.
Status record(int index, void* event, void* stream) {
  TRY_CUDA(index, cudaSetDevice(index));
  TRY_CUDA(index, cudaEventRecord(event_of(event), stream_of(stream)));
  return {};
}

Status stream_wait_event(int index, void* event, void* stream) {
  TRY_CUDA(index, cudaSetDevice(index));
  TRY_CUDA(index, cudaStreamWaitEvent(stream_of(stream), event_of(event), 0));
  return {};
}

Result<bool> passed(int index, void* event) {
  const cudaError_t code = cudaEventQuery(event_of(event));
  if (code == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  TRY_CUDA_CODE(index, "cudaEventQuery", code);
  return true;
}

Status synchronize_event(int index, void* event) {
  TRY_CUDA(index, cudaEventSynchronize(event_of(event)));
  return {};
}

Result<double> elapsed(int index, const EventPair& events) {
  float milliseconds = 0;
  TRY_CUDA(index, cudaEventElapsedTime(&milliseconds, event_of(events.from), event_of(events.to)));
  return static_cast<double>(milliseconds) * 1e-3;
}

Result<void*> allocate(int index, size_t bytes, std::string_view by) {
  TRY_CUDA(index, cudaSetDevice(index));
  void* data = nullptr;
  const cudaError_t code = cudaMalloc(&data, bytes);
  if (code == cudaErrorMemoryAllocation) return allocation_error(index, bytes, by);
  TRY_CUDA_CODE(index, "cudaMalloc", code);
  cudaError_t zeroed = cudaMemset(data, 0, bytes);
  // The memset runs on the null stream, for which our non-blocking streams do not wait.
  if (zeroed == cudaSuccess) zeroed = cudaStreamSynchronize(nullptr);
  if (zeroed != cudaSuccess) cudaFree(data);
  TRY_CUDA_CODE(index, "cudaMemset", zeroed);
  return data;
}

void release(int index, void* data) {
  if (cudaSetDevice(index) == cudaSuccess) cudaFree(data);
}

Result<void*> allocate_pinned(int index, size_t bytes, std::string_view by) {
  TRY_CUDA(index, cudaSetDevice(index));
  void* data = nullptr;
  // Portable: pinned for every device of the process, not only the current one.
  const cudaError_t code = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (code == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return out_of_memory({.device = {}, .bytes = bytes, .by = by});
  }
  TRY_CUDA_CODE(index, "cudaHostAlloc", code);
  return data;
}

void release_pinned(void* data) {
  cudaFreeHost(data);
}

Status pin(int index, const Workspace& memory, std::string_view by) {
  TRY_CUDA(index, cudaSetDevice(index));
  const cudaError_t code = cudaHostRegister(memory.data, memory.bytes, cudaHostRegisterPortable);
  if (code == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return out_of_memory({.device = {}, .bytes = memory.bytes, .by = by});
  }
  TRY_CUDA_CODE(index, "cudaHostRegister", code);
  return {};
}

void unpin(void* data) {
  cudaHostUnregister(data);
}

Status copy(int index, void* stream, const CopyArgs& args) {
  TRY_CUDA(index, cudaSetDevice(index));
  TRY_CUDA(index,
           cudaMemcpyAsync(args.to, args.from, args.bytes, cudaMemcpyDefault, stream_of(stream)));
  return {};
}

}  // namespace lockstep::kernels::cuda_api
