#pragma once

#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::train {

// Fills a buffer with numbers in [-1, 1), always the same: what kernels are timed on, which on
// zeros draw less power and are faster. 4 MiB of them again and again: what a kernel costs doesn't
// depend on it. Waits for the stream.
Status fill_random(kernels::Stream& stream, kernels::Buffer& buffer, kernels::DType dtype);

}  // namespace lockstep::train
