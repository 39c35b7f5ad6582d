#pragma once

#include <cstdint>

#include "kernels/device/dtype.h"
#include "kernels/ops/rounding.h"

namespace lockstep::kernels {

// out[i] = x[i] / (1 - probability) if element first + i is kept, else 0. out may be x (in-place).
// Which elements are kept is a function of the key and the element's number alone, so that it is
// the same on every device, in every pass and however elements are cut into calls. The op is its
// own backward: applied to out's gradient, it gives x's. Source: Srivastava et al., "Dropout: a
// simple way to prevent neural networks from overfitting", JMLR 2014, in its inverted form.
struct Dropout {
  ConstView x = {};
  View out = {};
  int64_t count = 0;
  int64_t first = 0;       // number of the first element
  double probability = 0;  // of an element to be dropped, in [0, 1)
  uint64_t key = 0;        // dropout_key()
};

// Returns the key of one place in a model, such as a layer's output.
constexpr uint64_t dropout_key(uint64_t seed, int64_t place) {
  return mixed_bits(mixed_bits(~seed) + static_cast<uint64_t>(place));
}

// An element is kept if its random 32 bits are at least this.
constexpr uint32_t dropout_threshold(double probability) {
  return static_cast<uint32_t>(probability * 4294967296.0);
}

constexpr bool is_kept(uint64_t key, int64_t element, uint32_t threshold) {
  return static_cast<uint32_t>(mixed_bits(key + static_cast<uint64_t>(element)) >> 32) >= threshold;
}

constexpr float dropout_scale(double probability) {
  return static_cast<float>(1.0 / (1.0 - probability));
}

}  // namespace lockstep::kernels
