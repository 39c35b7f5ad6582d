#pragma once

#include "bench/kernels/work.h"

// The minimum time of an op on a device. Source: Williams, Waterman and Patterson, "Roofline", CACM
// 2009. Pure.
namespace lockstep::bench {

// A device's peak rates per second; 0: unknown, not a limit.
struct Peaks {
  double bytes = 0.0;       // memory, read and written
  double f32_flops = 0.0;   // products in fp32, and all other arithmetic
  double bf16_flops = 0.0;  // products in bf16
};

struct Bound {
  double seconds = 0.0;
  const char* by = "";  // the limiting rate: "memory", "products" or "arithmetic"
};

Bound bound_of(const Work& work, const Peaks& peaks);

}  // namespace lockstep::bench
