#pragma once

#include <cstdint>

#include "kernels/device/device.h"

namespace lockstep::kernels {

// y = silu(gate) * up, silu(x) = x / (1 + e^-x), for R rows (B*T) of H hidden values. gate and up
// are packed as one product writes them: gate_up[r] = gate (H), up (H).
// Source: Shazeer, "GLU variants improve transformer", 2020.
struct SwigluForward {
  ConstView gate_up = {};  // [R,2H]
  View y = {};             // [R,H]; must not be gate_up
  int64_t rows = 0;
  int64_t width = 0;  // H
};

// dgate = dy * up * silu'(gate), dup = dy * silu(gate), packed like gate_up.
struct SwigluBackward {
  ConstView gate_up = {};  // [R,2H]
  ConstView dy = {};       // [R,H]
  View dgate_up = {};      // [R,2H], overwritten; may be gate_up (in-place)
  int64_t rows = 0;
  int64_t width = 0;  // H
};

}  // namespace lockstep::kernels
