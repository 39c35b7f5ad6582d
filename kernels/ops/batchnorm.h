#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// Batch normalisation of rows of channels, in passes: sums over rows, which ranks that share a
// batch add up in between, and the use of them. Legend: R rows (images x pixels), C channels, n
// rows of all ranks. Statistics and parameters are fp32, sums double. Source: Ioffe and Szegedy,
// "Batch Normalization", 2015.

// The sums of a pass in one array of doubles: [C] sums, [C] other sums, and the number of rows.
constexpr int64_t batchnorm_sums_count(int64_t channels) {
  return 2 * channels + 1;
}

// sums[c] = sum over r of (x[r,c] - shift[c]), sums[C+c] = sum of the squares of that. A shift near
// the mean keeps precision. The order of the sums does not depend on the number of threads.
struct BatchNormSums {
  ConstView x = {};              // [R,C]
  const float* shift = nullptr;  // [C]
  double* sums = nullptr;        // [2C+1]
  int64_t rows = 0;
  int64_t channels = 0;
  Workspace workspace = {};  // batchnorm_workspace(channels, device's type)
};

// mean[c] and variance[c] (divided by n) of all n rows, from the sums of BatchNormSums.
struct BatchNormMoments {
  const double* sums = nullptr;  // [2C+1]
  const float* shift = nullptr;  // [C]
  float* mean = nullptr;         // [C]
  float* variance = nullptr;     // [C]
  int64_t channels = 0;
};

// y = f((x - mean) / sqrt(variance + epsilon) * weight + bias + residual), f = max(., 0) with relu.
struct BatchNormForward {
  ConstView x = {};                 // [R,C]
  const float* mean = nullptr;      // [C]
  const float* variance = nullptr;  // [C]
  const float* weight = nullptr;    // [C]
  const float* bias = nullptr;      // [C]
  ConstView residual = {};          // [R,C] or null
  View y = {};                      // [R,C]; may be x (in-place)
  int64_t rows = 0;
  int64_t channels = 0;
  float epsilon = 1e-5f;
  bool relu = false;
};

// dy <- d: dy, or with relu dy where y > 0 and 0 elsewhere, in-place. dresidual = d, or with
// adds_dresidual dresidual += d. sums[c] = sum of d, sums[C+c] = sum of d * hat, where hat = (x -
// mean) / sqrt(variance + epsilon). Adds these two to dbias and dweight.
struct BatchNormBackwardSums {
  View dy = {};                     // [R,C]
  ConstView y = {};                 // [R,C]: the result of relu; null: without relu
  ConstView x = {};                 // [R,C]
  const float* mean = nullptr;      // [C]
  const float* variance = nullptr;  // [C]
  View dresidual = {};              // [R,C] or null
  bool adds_dresidual = false;
  double* sums = nullptr;    // [2C+1]
  float* dweight = nullptr;  // [C]
  float* dbias = nullptr;    // [C]
  int64_t rows = 0;
  int64_t channels = 0;
  float epsilon = 1e-5f;
  Workspace workspace = {};  // batchnorm_workspace(channels, device's type)
};

// dx = weight / sqrt(variance + epsilon) * (d - sums[c] / n - hat * sums[C+c] / n), with the d and
// the sums of BatchNormBackwardSums, added up over all n rows.
struct BatchNormBackward {
  ConstView dy = {};                // [R,C]: d
  ConstView x = {};                 // [R,C]
  const float* mean = nullptr;      // [C]
  const float* variance = nullptr;  // [C]
  const float* weight = nullptr;    // [C]
  const double* sums = nullptr;     // [2C+1]
  View dx = {};                     // [R,C]; may be dy or x (in-place)
  int64_t rows = 0;
  int64_t channels = 0;
  float epsilon = 1e-5f;
};

// The gradients with which a plain step of rate m makes the running statistics (1 - m) running + m
// batch: dmean += factor (running_mean - mean), dvariance += factor (running_variance - variance n
// / (n - 1)).
struct BatchNormRunning {
  const float* mean = nullptr;              // [C]
  const float* variance = nullptr;          // [C]
  const float* running_mean = nullptr;      // [C]
  const float* running_variance = nullptr;  // [C]
  const double* rows = nullptr;             // n: BatchNormSums::sums + 2C
  float* dmean = nullptr;                   // [C]
  float* dvariance = nullptr;               // [C]
  int64_t channels = 0;
  float factor = 1.0f;
};

// Sums over rows are computed in this many parts, for any number of threads.
constexpr int64_t batchnorm_parts(DeviceType device) {
  return device == DeviceType::kCpu ? 16 : 64;
}

constexpr size_t batchnorm_workspace(int64_t channels, DeviceType device) {
  return static_cast<size_t>(batchnorm_parts(device) * 2 * channels) * sizeof(double);
}

}  // namespace lockstep::kernels
