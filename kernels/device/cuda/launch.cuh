#pragma once

#include "kernels/device/cuda/cuda_call.h"
#include "kernels/device/device.h"
#include "kernels/device/launch_shape.h"

// The only way to launch a kernel. tests/support/emulated_cuda has the emulated version.
namespace lockstep::kernels::cuda {

// Launches the kernel in stream order and copies its arguments. Stream::synchronize() reports all
// errors, including launch errors.
template <class... Parameters>
void launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
  static_assert((sizeof(Parameters) + ... + 0) <= kKernelArgumentBytes);
  if (is_empty(shape)) return;
  const int index = stream.device().index;
  const auto start = [&]() -> Status {
    TRY(check_launchable(shape));
    constexpr size_t kWithoutAsking = 48 << 10;
    TRY_CUDA(index, cudaSetDevice(index));
    if (shape.shared_bytes > kWithoutAsking) {
      TRY_CUDA_CODE(index, shape.name,
                    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(shape.shared_bytes)));
    }
    cudaLaunchConfig_t config = {};
    config.gridDim =
        dim3(static_cast<unsigned>(shape.blocks.x), static_cast<unsigned>(shape.blocks.y),
             static_cast<unsigned>(shape.blocks.z));
    config.blockDim = dim3(static_cast<unsigned>(shape.threads));
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream.handle());
    TRY_CUDA_CODE(index, shape.name, cudaLaunchKernelEx(&config, kernel, arguments...));
    return {};
  };
  if (const Status started = start(); !started.ok()) stream.fail(started.error());
}

}  // namespace lockstep::kernels::cuda
