#pragma once

#include <cuda_runtime_api.h>

#include "kernels/device/device_errors.h"

// TRY_CUDA(index, call): if the CUDA runtime call fails, returns the error from the enclosing
// function, with call, file, line and device. Clears the runtime's last error, so that no later
// call reports it again. Sticky errors, which corrupt the context, remain.
#define TRY_CUDA(index, expression) TRY_CUDA_CODE(index, #expression, expression)

// The same for an error code that the call `name` has already returned.
#define TRY_CUDA_CODE(index, name, expression)                                           \
  do {                                                                                   \
    if (const cudaError_t code_ = (expression); code_ != cudaSuccess) {                  \
      static_cast<void>(cudaGetLastError());                                             \
      return ::lockstep::kernels::call_error(                                            \
          {name, __FILE__, __LINE__, {::lockstep::kernels::DeviceType::kCuda, (index)}}, \
          cudaGetErrorString(code_));                                                    \
    }                                                                                    \
  } while (false)
