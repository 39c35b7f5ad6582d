#pragma once

#include <cudnn_graph.h>

#include "common/base/result.h"

namespace lockstep::dnn {

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

// The library, loaded when it is first asked for; it stays loaded. kUnavailable where there is
// none. Twin: the emulated device's (tests/support/emulated_cuda).
Result<const CudnnLibrary*> load_cudnn();

}  // namespace lockstep::dnn
