#pragma once

#include <cuda_runtime_api.h>

#include "kernels/device/device_words.h"

// TRY_CUDA(index, call): returns the error of a call of the CUDA runtime, with call, file, line and
// device, from the enclosing function. The runtime's memory of it is cleared, so that no later call
// reports it again; what broke the context for good stays broken.
#define TRY_CUDA(index, expression) TRY_CUDA_CODE(index, #expression, expression)

// The same for a code that is there already, of the call with that name.
#define TRY_CUDA_CODE(index, name, expression)                                  \
  do {                                                                          \
    if (const cudaError_t code_ = (expression); code_ != cudaSuccess) {         \
      static_cast<void>(cudaGetLastError());                                    \
      return ::lockstep::call_error(                                            \
          {name, __FILE__, __LINE__, {::lockstep::DeviceType::kCuda, (index)}}, \
          cudaGetErrorString(code_));                                           \
    }                                                                           \
  } while (false)
