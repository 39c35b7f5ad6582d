#include "kernels/ops/rmsnorm.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kRowGrain = 64;

// Returns the sum of the squares of h = a + b, and stores h. If b is null, h is a and nothing is
// written. Uses two chains, for speed.
float squares_of_row(const float* a, const float* b, float* h, int64_t width) {
  Vec even = {}, odd = {};
  int64_t i = 0;
  const auto value = [&](int64_t at, int64_t n) {
    Vec v = load_n(a + at, n);
    if (b) {
      v += load_n(b + at, n);
      store_n(h + at, v, n);
    }
    return v;
  };
  for (; i + 2 * kLanes <= width; i += 2 * kLanes) {
    const Vec v = value(i, kLanes), w = value(i + kLanes, kLanes);
    even += v * v;
    odd += w * w;
  }
  for_vectors(width - i, [&](int64_t at, int64_t n) {
    const Vec v = value(i + at, n);
    even += v * v;
  });
  return sum_of(even + odd);
}

struct BackwardRow {
  const float* dy;
  const float* h;
  const float* dresidual;
  float* dx;
  float rrms;
};

// Computes one row of dx; adds to dweight of the caller's part.
void backward_row(const BackwardRow& row, const float* weight, float* dweight, int64_t width) {
  Vec sum = {};
  for_vectors(width, [&](int64_t i, int64_t n) {
    const Vec dy = load_n(row.dy + i, n);
    const Vec hat = load_n(row.h + i, n) * row.rrms;
    sum += dy * load_n(weight + i, n) * hat;
    store_n(dweight + i, load_n(dweight + i, n) + dy * hat, n);
  });
  const float mean = sum_of(sum) / static_cast<float>(width);
  for_vectors(width, [&](int64_t i, int64_t n) {
    const Vec hat = load_n(row.h + i, n) * row.rrms;
    const Vec g = load_n(row.dy + i, n) * load_n(weight + i, n);
    Vec dx = (g - hat * mean) * row.rrms;
    if (row.dresidual) dx += load_n(row.dresidual + i, n);
    store_n(row.dx + i, dx, n);
  });
}

}  // namespace

void rmsnorm_forward(Stream&, const RmsNormForward& args) {
  CHECK(bool(args.residual) == bool(args.residual_out));
  const float* x = args.x.f32();
  const float* residual = args.residual.f32();
  float* residual_out = args.residual_out.f32();
  const float* weight = args.weight.f32();
  float* y = args.y.f32();
  const int64_t width = args.width;
  parallel_for(args.rows, kRowGrain, [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r) {
      const float* a = x + r * width;
      const float* b = residual ? residual + r * width : nullptr;
      float* h_out = residual ? residual_out + r * width : nullptr;
      const float squares = squares_of_row(a, b, h_out, width);
      const float mean = squares / static_cast<float>(width);
      const float rrms = 1.0f / __builtin_sqrtf(mean + args.epsilon);
      const float* h = residual ? h_out : a;
      for_vectors(width, [&](int64_t i, int64_t n) {
        store_n(y + r * width + i, load_n(h + i, n) * rrms * load_n(weight + i, n), n);
      });
      if (args.rrms) args.rrms[r] = rrms;
    }
  });
}

void rmsnorm_backward(Stream&, const RmsNormBackward& args) {
  const int64_t width = args.width;
  CHECK(args.workspace.bytes >= rmsnorm_backward_workspace(width, DeviceType::kCpu));
  const float* dy = args.dy.f32();
  const float* h = args.h.f32();
  const float* weight = args.weight.f32();
  const float* dresidual = args.dresidual.f32();
  float* dx = args.dx.f32();
  float* parts = static_cast<float*>(args.workspace.data);  // [kParts][C]
  // The number of parts does not depend on the number of threads, so the sums are bitwise
  // reproducible.
  constexpr int kParts = rmsnorm_backward_parts(DeviceType::kCpu);
  parallel_for(kParts, 1, [&](Range range) {
    for (int64_t part = range.begin; part < range.end; ++part) {
      float* dweight = parts + part * width;
      __builtin_memset(dweight, 0, static_cast<size_t>(width) * sizeof(float));
      const int64_t end = args.rows * (part + 1) / kParts;
      for (int64_t r = args.rows * part / kParts; r < end; ++r) {
        backward_row({.dy = dy + r * width,
                      .h = h + r * width,
                      .dresidual = dresidual ? dresidual + r * width : nullptr,
                      .dx = dx + r * width,
                      .rrms = args.rrms[r]},
                     weight, dweight, width);
      }
    }
  });
  float* dweight = args.dweight.f32();
  for (int64_t part = 0; part < kParts; ++part) {
    const float* from = parts + part * width;
    for_vectors(width, [&](int64_t i, int64_t n) {
      store_n(dweight + i, load_n(dweight + i, n) + load_n(from + i, n), n);
    });
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
