#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/ops/conv2d.h"

namespace lockstep::model {

// The kernels of a convolutional network's convolutions in passes of some numbers of samples. Other
// passes use our own.
struct ConvolutionChoice {
  std::map<int64_t, std::vector<kernels::Conv2dKernels>> kernels = {};  // by samples; of each unit
  size_t workspace_bytes = 0;                                           // covers all of them
  // Passes of convolutions that cuDNN leaves to our own kernels, with the largest number of
  // samples, and the reason for the first of them.
  int64_t own_passes = 0;
  std::string reason = {};
  // Passes with fewer samples that our own kernels compute because cuDNN's need more workspace.
  int64_t dropped_passes = 0;

  kernels::Conv2dKernels of(int64_t samples, int64_t unit) const {
    const auto at = kernels.find(samples);
    return at == kernels.end() ? kernels::Conv2dKernels() : at->second[static_cast<size_t>(unit)];
  }
};

}  // namespace lockstep::model
