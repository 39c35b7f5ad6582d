#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

enum class Pooling : uint8_t { kMax, kAverage };

// Sizes of a pooling, channels-last. Legend: N images of H x W pixels with C channels, windows of R
// x S pixels, images of P x Q pixels as output.
struct PoolShape {
  int64_t batch = 0;          // N
  int64_t height = 0;         // H
  int64_t width = 0;          // W
  int64_t channels = 0;       // C
  int64_t window_height = 1;  // R
  int64_t window_width = 1;   // S
  int64_t stride = 1;         // at least 1
  int64_t padding = 0;        // at most half a window; 0 for kAverage

  constexpr int64_t out_height() const {
    return (height + 2 * padding - window_height) / stride + 1;
  }
  constexpr int64_t out_width() const { return (width + 2 * padding - window_width) / stride + 1; }
  constexpr int64_t in_count() const { return batch * height * width * channels; }
  constexpr int64_t out_count() const { return batch * out_height() * out_width() * channels; }
  bool operator==(const PoolShape&) const = default;
};

// y[n,p,q,c] = the largest value, or the mean, of a window of x. Pixels outside the image do not
// count. A NaN is larger than any number; of equal values the first is taken.
struct PoolForward {
  ConstView x = {};           // [N,H,W,C]
  View y = {};                // [N,P,Q,C]
  int32_t* places = nullptr;  // [N,P,Q,C] kMax, for backward: the pixel h W + w; null: not stored
  PoolShape shape = {};
  Pooling kind = Pooling::kMax;
};

struct PoolBackward {
  ConstView dy = {};                // [N,P,Q,C]
  const int32_t* places = nullptr;  // [N,P,Q,C] only with kMax
  View dx = {};                     // [N,H,W,C], overwritten
  PoolShape shape = {};
  Pooling kind = Pooling::kMax;
};

}  // namespace lockstep::kernels
