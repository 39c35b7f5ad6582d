#pragma once

#include <cstddef>
#include <string_view>

#include "common/base/result.h"
#include "kernels/device/device.h"

// The part of the CUDA runtime that device.cc needs. cuda/ implements it. no_cuda/ defines the same
// symbols, but counts 0 devices and returns kUnavailable. Stream handles are cudaStream_t, event
// handles are cudaEvent_t, and `index` is their device. Errors name call, file, line and device.
namespace lockstep::kernels::cuda_api {

int device_count();
Result<DeviceInfo> describe(int index);
Result<DeviceMemory> memory_of(int index);
Result<PeerAccess> peer_access(int from, int to);

Result<void*> create_stream(int index);
void destroy_stream(void* stream);
Status synchronize(int index, void* stream);

// Recording a timed event costs the device a little more.
Result<void*> create_event(int index, bool is_timed);
void destroy_event(void* event);
Status record(int index, void* event, void* stream);
Status stream_wait_event(int index, void* event, void* stream);
Result<bool> passed(int index, void* event);
Status synchronize_event(int index, void* event);
struct EventPair {
  void* from = nullptr;
  void* to = nullptr;
};
// Returns the device time between two timed events, in seconds. Both must be recorded and passed;
// otherwise an error.
Result<double> elapsed(int index, const EventPair& events);

// Returns zeroed device memory.
Result<void*> allocate(int index, size_t bytes, std::string_view by);
void release(int index, void* data);
Result<void*> allocate_pinned(int index, size_t bytes, std::string_view by);
void release_pinned(void* data);
// Page-locks memory of the host for every device of the process.
Status pin(int index, const Workspace& memory, std::string_view by);
void unpin(void* data);
Status copy(int index, void* stream, const CopyArgs& args);

}  // namespace lockstep::kernels::cuda_api
