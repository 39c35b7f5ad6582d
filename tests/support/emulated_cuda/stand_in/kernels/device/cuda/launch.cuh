// The emulated version of kernels/device/cuda/launch.cuh: the kernel runs in stream order.
#pragma once

#include <type_traits>

#include "kernels/device/device.h"
#include "kernels/device/launch_shape.h"
#include "tests/support/emulated_cuda/devices.h"
#include "tests/support/emulated_cuda/emulator.h"

namespace lockstep::kernels::cuda {

template <class... Parameters>
void launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
  static_assert((sizeof(Parameters) + ... + 0) <= kKernelArgumentBytes);
  if (is_empty(shape)) return;
  Status started = check_launchable(shape);
  if (started.ok()) {
    started = emulated_cuda::issue(stream.handle(), [=](uint64_t seed) {
      return emulated_cuda::run_kernel(
          shape, [&] { kernel(arguments...); }, seed);
    });
  }
  if (!started.ok()) stream.fail(started.error());
}

}  // namespace lockstep::kernels::cuda
