#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "common/base/result.h"

namespace lockstep::dnn {

// Before it backward was wrong for lengths that 128 does not divide, in 9.10.0 and 9.10.1 both
// passes for more (cuDNN's release notes; what its frontend 1.32 works around or refuses).
inline constexpr size_t kCudnnVersionMin = 91600;

// The functions of cuDNN that are used, with the types that cudnn_graph.h gives them.
struct CudnnLibrary {
  // Makes a device the calling thread's current one, in whose context the others work.
  Status (*use_device)(int index) = nullptr;
  // Its compute capability, as 10 * major + minor.
  Result<int> (*capability)(int index) = nullptr;

  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnGetLastErrorString) last_error_string = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;
};

// The first of these folders (ending in '/'; empty: where the loader looks) in which the library is
// and of kCudnnVersionMin or later. It stays loaded. kUnavailable where none has it: what each has
// instead.
Result<CudnnLibrary> load_cudnn_from(std::span<const std::string_view> folders);

// From where the loader looks or the toolkit is installed, when it is first asked for. Twin: the
// emulated device's (tests/support/emulated_cuda).
Result<const CudnnLibrary*> load_cudnn();

}  // namespace lockstep::dnn
