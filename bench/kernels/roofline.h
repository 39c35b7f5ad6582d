#pragma once

#include "bench/kernels/work.h"

// The least time that an operation can take on a device. Source: Williams, Waterman and Patterson,
// "Roofline", CACM 2009. Pure.
namespace lockstep::bench {

// What a device gives at best, per second; 0: not known, which bounds nothing.
struct Peaks {
  double bytes = 0.0;       // of memory, read and written
  double f32_flops = 0.0;   // of products in fp32; also of all other arithmetic
  double bf16_flops = 0.0;  // of products in bf16
};

struct Bound {
  double seconds = 0.0;
  const char* by = "";  // which of the three: "memory", "products", "arithmetic"
};

Bound bound_of(const Work& work, const Peaks& peaks);

}  // namespace lockstep::bench
