#pragma once

#include "common/base/clock.h"
#include "common/base/result.h"
#include "kernels/ops/op_table.h"

namespace lockstep::train {

struct MatmulPeakOptions {
  kernels::MatmulShape shape{8192, 8192,
                             8192};  // large enough that an H200 spends its time on products
  kernels::DType dtype =
      kernels::DType::kBf16;  // of both factors and, but on the CPU, of the product
  int rounds = 5;
  int times = 4;  // in a round
};

// FLOP/s that the device's matmul_forward reaches on random numbers (on zeros a GPU draws less
// power and is faster): the best round. The buffers are gone when it returns. kUnavailable where
// they can't be had.
Result<double> matmul_peak(const kernels::OpTable& ops, kernels::Stream& stream,
                           const MatmulPeakOptions& options, const Clock& clock);
// The same with the device's own operations, on a stream of its own.
Result<double> matmul_peak(kernels::Device device, const MatmulPeakOptions& options,
                           const Clock& clock);

}  // namespace lockstep::train
