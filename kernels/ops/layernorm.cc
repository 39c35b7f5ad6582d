#include "kernels/ops/layernorm.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kRowGrain = 64;

struct Moments {
  float mean = 0.0f;
  float rstd = 0.0f;
};

// h[width] = a + b; if b is null, h is a and nothing is written. Returns the sum of h.
float sum_row(const float* a, const float* b, float* h, int64_t width) {
  Vec sum = {};
  if (b == nullptr) {
    for_vectors(width, [&](int64_t i, int64_t n) { sum += load_n(a + i, n); });
    return sum_of(sum);
  }
  for_vectors(width, [&](int64_t i, int64_t n) {
    const Vec v = load_n(a + i, n) + load_n(b + i, n);
    store_n(h + i, v, n);
    sum += v;
  });
  return sum_of(sum);
}

// Sums the variance from differences, for precision, and in two chains, for speed.
Moments moments_of(const float* h, float sum, int64_t width, float epsilon) {
  const float mean = sum / static_cast<float>(width);
  Vec even = {}, odd = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= width; i += 2 * kLanes) {
    const Vec d = load(h + i) - mean, e = load(h + i + kLanes) - mean;
    even += d * d;
    odd += e * e;
  }
  for (; i + kLanes <= width; i += kLanes) {
    const Vec d = load(h + i) - mean;
    even += d * d;
  }
  float variance = sum_of(even + odd);
  for (; i < width; ++i) variance += (h[i] - mean) * (h[i] - mean);
  variance /= static_cast<float>(width);
  return {mean, 1.0f / __builtin_sqrtf(variance + epsilon)};
}

struct BackwardRow {
  const float* dy;
  const float* h;
  const float* dresidual;
  float* dx;
  float mean;
  float rstd;
};

// Computes one row of dx; adds to dweight and dbias of the caller's part.
void backward_row(const BackwardRow& row, const float* weight, float* dweight, float* dbias,
                  int64_t width) {
  Vec sum = {}, sum_hat = {};
  for_vectors(width, [&](int64_t i, int64_t n) {
    const Vec dy = load_n(row.dy + i, n);
    const Vec hat = (load_n(row.h + i, n) - row.mean) * row.rstd;
    const Vec g = dy * load_n(weight + i, n);
    sum += g;
    sum_hat += g * hat;
    store_n(dweight + i, load_n(dweight + i, n) + dy * hat, n);
    store_n(dbias + i, load_n(dbias + i, n) + dy, n);
  });
  const float mean_g = sum_of(sum) / static_cast<float>(width);
  const float mean_g_hat = sum_of(sum_hat) / static_cast<float>(width);
  for_vectors(width, [&](int64_t i, int64_t n) {
    const Vec hat = (load_n(row.h + i, n) - row.mean) * row.rstd;
    const Vec g = load_n(row.dy + i, n) * load_n(weight + i, n);
    Vec dx = (g - mean_g - hat * mean_g_hat) * row.rstd;
    if (row.dresidual) dx += load_n(row.dresidual + i, n);
    store_n(row.dx + i, dx, n);
  });
}

}  // namespace

void layernorm_forward(Stream&, const LayerNormForward& args) {
  CHECK(bool(args.residual) == bool(args.residual_out));
  const float* x = args.x.f32();
  const float* residual = args.residual.f32();
  float* residual_out = args.residual_out.f32();
  const float* weight = args.weight.f32();
  const float* bias = args.bias.f32();
  float* y = args.y.f32();
  const int64_t width = args.width;
  parallel_for(args.rows, kRowGrain, [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r) {
      const float* a = x + r * width;
      const float* b = residual ? residual + r * width : nullptr;
      float* h_out = residual ? residual_out + r * width : nullptr;
      const float sum = sum_row(a, b, h_out, width);
      const float* h = residual ? h_out : a;
      const Moments moments = moments_of(h, sum, width, args.epsilon);
      float* out = y + r * width;
      for_vectors(width, [&](int64_t i, int64_t n) {
        const Vec hat = (load_n(h + i, n) - moments.mean) * moments.rstd;
        store_n(out + i, hat * load_n(weight + i, n) + load_n(bias + i, n), n);
      });
      if (args.mean) args.mean[r] = moments.mean;
      if (args.rstd) args.rstd[r] = moments.rstd;
    }
  });
}

void layernorm_backward(Stream&, const LayerNormBackward& args) {
  const int64_t width = args.width;
  CHECK(args.workspace.bytes >= layernorm_backward_workspace(width, DeviceType::kCpu));
  const float* dy = args.dy.f32();
  const float* h = args.h.f32();
  const float* weight = args.weight.f32();
  const float* dresidual = args.dresidual.f32();
  float* dx = args.dx.f32();
  float* parts = static_cast<float*>(args.workspace.data);  // [kParts][dweight, dbias][C]
  // The number of parts does not depend on the number of threads, so the sums are bitwise
  // reproducible.
  constexpr int kParts = layernorm_backward_parts(DeviceType::kCpu);
  parallel_for(kParts, 1, [&](Range range) {
    for (int64_t part = range.begin; part < range.end; ++part) {
      float* dweight = parts + part * 2 * width;
      float* dbias = dweight + width;
      __builtin_memset(dweight, 0, static_cast<size_t>(2 * width) * sizeof(float));
      const int64_t end = args.rows * (part + 1) / kParts;
      for (int64_t r = args.rows * part / kParts; r < end; ++r) {
        backward_row({.dy = dy + r * width,
                      .h = h + r * width,
                      .dresidual = dresidual ? dresidual + r * width : nullptr,
                      .dx = dx + r * width,
                      .mean = args.mean[r],
                      .rstd = args.rstd[r]},
                     weight, dweight, dbias, width);
      }
    }
  });
  float* dweight = args.dweight.f32();
  float* dbias = args.dbias.f32();
  for (int64_t part = 0; part < kParts; ++part) {
    const float* from = parts + part * 2 * width;
    for_vectors(width, [&](int64_t i, int64_t n) {
      store_n(dweight + i, load_n(dweight + i, n) + load_n(from + i, n), n);
      store_n(dbias + i, load_n(dbias + i, n) + load_n(from + width + i, n), n);
    });
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
