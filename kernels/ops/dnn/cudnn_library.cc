#include "kernels/ops/dnn/cudnn_library.h"

#include <dlfcn.h>

#include <array>
#include <string>

#include "kernels/device/cuda/cuda_call.h"
#include "kernels/device/shared_library.h"

namespace lockstep::kernels::dnn {

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

// Closes a library that is not returned, so that the next one does not pick up its sub-libraries.
Result<CudnnLibrary> open_library(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return unavailable(reason != nullptr ? reason : "cannot load " + path);
  }
  Result<CudnnLibrary> library = find_all({.handle = handle, .name = "cudnn"});
  if (library.ok() && library->version() < kCudnnVersionMin) {
    library = unavailable(path + " is version " + std::to_string(library->version()));
  }
  if (!library.ok()) ::dlclose(handle);
  return library;
}

}  // namespace

Result<CudnnLibrary> load_cudnn_from(std::span<const std::string_view> folders) {
  // The soname of the version we compiled against, whose headers declare the library's types.
  const std::string name = "libcudnn.so." + std::to_string(CUDNN_MAJOR);
  std::string reasons;
  for (const std::string_view folder : folders) {
    Result<CudnnLibrary> library = open_library(std::string(folder) + name);
    if (library.ok()) return library;
    reasons += (reasons.empty() ? "" : "; ") + library.error().message;
  }
  return unavailable("[cudnn] expected " + name + " version " + std::to_string(kCudnnVersionMin) +
                     " or later, got " + reasons);
}

Result<const CudnnLibrary*> load_cudnn() {
  static constexpr std::array<std::string_view, 2> kFolders{"", "/usr/local/cuda/lib64/"};
  static const Result<CudnnLibrary> library = load_cudnn_from(kFolders);
  TRY(library);
  return &library.value();
}

}  // namespace lockstep::kernels::dnn
