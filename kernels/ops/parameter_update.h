#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// The indices that a tensor's elements have in the whole model, of which the tensor may be a part.
// Elements come in rows of `columns`; the rows are `stride` apart. With columns 0 they are
// consecutive. Draws of random bits use the index, so that they do not depend on the layout.
struct ElementIndex {
  int64_t first = 0;
  int64_t columns = 0;
  int64_t stride = 0;
};

// Returns the index of the tensor's element i; for host and device.
constexpr int64_t index_of(const ElementIndex& elements, int64_t i) {
  if (elements.columns == 0) return elements.first + i;
  return elements.first + i / elements.columns * elements.stride + i % elements.columns;
}

inline constexpr int kOwnStatesMax = 2;                     // of an op's formula
inline constexpr int kUpdateStatesMax = kOwnStatesMax + 1;  // and a moving average

// A tensor of parameters for an optimizer's op (AdamW, Sgd, Adagrad, Ftrl).
//
// All of them multiply gradients by gradient_scale and, with device_scale, by *device_scale. If
// that product is not finite, the op writes nothing.
//
// With an average_state they also keep a moving average of the new parameters in that state, which
// comes after those of the formula: average += average_rate (parameter - average).
//
// They round bf16 copies to nearest even or, with a rounding_seed, stochastically (rounding.h). The
// key is rounding_key(rounding_seed, step), to which an element's index is added, so a parameter
// gets the same bits on every device and in every layout. Source: Gupta et al., "Deep learning with
// limited numerical precision", 2015.
struct UpdatedTensor {
  float* parameter = nullptr;
  const float* gradient = nullptr;
  float* states[kUpdateStatesMax] = {};  // each op says which it has
  View copy = {};  // copy of the new parameter in this view's dtype (bf16 weights for matmul); or
                   // null
  int64_t count = 0;
  float weight_decay = 0.0f;
  ElementIndex index = {};
  // Above 0: the update is parameter -= plain_rate * gradient, whatever the op. The gradient is not
  // scaled, there is no decay, and the states of the formula do not change.
  float plain_rate = 0.0f;
};

}  // namespace lockstep::kernels
