#include "kernels/ops/dnn/cudnn_library.h"

#include <dlfcn.h>

#include <string>

#include "kernels/device/cuda/cuda_call.h"
#include "kernels/device/shared_library.h"

namespace lockstep::dnn {

namespace {

Status use_device(int index) {
  TRY_CUDA(index, cudaSetDevice(index));
  return {};
}

Result<int> capability(int index) {
  int major = 0, minor = 0;
  TRY_CUDA(index, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  TRY_CUDA(index, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
  return 10 * major + minor;
}

Result<CudnnLibrary> find_all(const SharedLibrary& shared) {
  CudnnLibrary library{.use_device = use_device, .capability = capability};
  TRY(find_function(shared, "cudnnGetVersion", library.version));
  TRY(find_function(shared, "cudnnGetErrorString", library.error_string));
  TRY(find_function(shared, "cudnnGetLastErrorString", library.last_error_string));
  TRY(find_function(shared, "cudnnCreate", library.create));
  TRY(find_function(shared, "cudnnSetStream", library.set_stream));
  TRY(find_function(shared, "cudnnBackendCreateDescriptor", library.create_descriptor));
  TRY(find_function(shared, "cudnnBackendDestroyDescriptor", library.destroy_descriptor));
  TRY(find_function(shared, "cudnnBackendSetAttribute", library.set_attribute));
  TRY(find_function(shared, "cudnnBackendGetAttribute", library.get_attribute));
  TRY(find_function(shared, "cudnnBackendFinalize", library.finalize));
  TRY(find_function(shared, "cudnnBackendExecute", library.execute));
  return library;
}

// The soname of the version that this was compiled with; where the loader looks, where the toolkit
// is installed, and where the headers of this build came from (a Python package has both).
Result<CudnnLibrary> load() {
  const std::string name = "libcudnn.so." + std::to_string(CUDNN_MAJOR);
  std::string words;
  for (const std::string folder : {"", "/usr/local/cuda/lib64/", LOCKSTEP_CUDNN_LIBRARIES "/"}) {
    void* handle = ::dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return find_all({.handle = handle, .name = "cudnn"});
    const char* reason = ::dlerror();
    if (words.empty() && reason != nullptr) words = reason;
  }
  return unavailable("[cudnn] " + name + " expected, got " + words);
}

}  // namespace

Result<const CudnnLibrary*> load_cudnn() {
  static const Result<CudnnLibrary> library = load();
  TRY(library);
  return &library.value();
}

}  // namespace lockstep::dnn
