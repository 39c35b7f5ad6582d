// The twin of kernels/device/cuda/launch.cuh: the kernel has run when launch() returns.
#pragma once

#include <type_traits>

#include "kernels/device/device.h"
#include "kernels/device/launch_shape.h"
#include "tests/support/emulated_cuda/emulator.h"

namespace lockstep::cuda {

template <class... Parameters>
void launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
  if (is_empty(shape)) return;
  const Status ran = emulated_cuda::run_kernel(shape, [&] { kernel(arguments...); });
  if (!ran.ok()) stream.fail(ran.error());
}

}  // namespace lockstep::cuda
