#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "common/base/result.h"

namespace lockstep::kernels::dnn {

// Earlier versions compute wrong gradients for lengths that are not multiples of 128; 9.10.0 and
// 9.10.1 are wrong for more cases, in both passes. Source: cuDNN's release notes, and what its
// frontend 1.32 works around or refuses.
inline constexpr size_t kCudnnVersionMin = 91600;

// The cuDNN functions we use, with their types from cudnn_graph.h.
struct CudnnLibrary {
  // Makes a device current for the calling thread; the other functions work in its context.
  Status (*use_device)(int index) = nullptr;
  // Returns the compute capability as 10 * major + minor.
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

// Loads the library from the first folder that has it in version kCudnnVersionMin or later. Folders
// end in '/'; an empty one means the loader's search path. The library stays loaded. kUnavailable
// if no folder has it; the error lists what each one has instead.
Result<CudnnLibrary> load_cudnn_from(std::span<const std::string_view> folders);

// Loads the library on first use, from the loader's search path or the toolkit's folders. The
// emulated device has its own implementation (tests/support/emulated_cuda).
Result<const CudnnLibrary*> load_cudnn();

}  // namespace lockstep::kernels::dnn
