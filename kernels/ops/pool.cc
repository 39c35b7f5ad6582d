#include "kernels/ops/pool.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kWork = 16384;  // values that are worth a thread

// The part of a window that is inside of the image.
struct Window {
  int64_t top = 0, bottom = 0, left = 0, right = 0;

  float pixels() const { return static_cast<float>((bottom - top) * (right - left)); }
};

Window window_of(const PoolShape& s, int64_t p, int64_t q) {
  const int64_t top = p * s.stride - s.padding, left = q * s.stride - s.padding;
  return {max_of(top, 0), min_of(top + s.window_height, s.height), max_of(left, 0),
          min_of(left + s.window_width, s.width)};
}

void take_largest(const PoolShape& s, const Window& window, const float* image, float* y,
                  int32_t* places) {
  for_vectors(s.channels, [&](int64_t i, int64_t n) {
    Vec best = {};
    IntVec place = {};
    for (int64_t h = window.top; h < window.bottom; ++h) {
      for (int64_t w = window.left; w < window.right; ++w) {
        const int32_t pixel = static_cast<int32_t>(h * s.width + w);
        const Vec value = load_n(image + pixel * s.channels + i, n);
        const bool is_first = h == window.top && w == window.left;
        const IntVec larger = is_first ? IntVec{} == IntVec{} : (value > best) | (value != value);
        best = larger ? value : best;
        place = larger ? pixel - IntVec{} : place;
      }
    }
    store_n(y + i, best, n);
    if (places == nullptr) return;
    for (int64_t lane = 0; lane < n; ++lane) places[i + lane] = place[lane];
  });
}

void take_mean(const PoolShape& s, const Window& window, const float* image, float* y) {
  for_vectors(s.channels, [&](int64_t i, int64_t n) {
    Vec sum = {};
    for (int64_t h = window.top; h < window.bottom; ++h) {
      for (int64_t w = window.left; w < window.right; ++w) {
        sum += load_n(image + (h * s.width + w) * s.channels + i, n);
      }
    }
    store_n(y + i, sum / window.pixels(), n);
  });
}

void spread_mean(const PoolShape& s, const Window& window, const float* dy, float* image) {
  const float factor = 1.0f / window.pixels();
  for (int64_t h = window.top; h < window.bottom; ++h) {
    for (int64_t w = window.left; w < window.right; ++w) {
      float* pixel = image + (h * s.width + w) * s.channels;
      for_vectors(s.channels, [&](int64_t i, int64_t n) {
        store_n(pixel + i, load_n(pixel + i, n) + load_n(dy + i, n) * factor, n);
      });
    }
  }
}

}  // namespace

void pool_forward(Stream&, const PoolForward& args) {
  const PoolShape& s = args.shape;
  CHECK(args.kind == Pooling::kMax || s.padding == 0);
  const int64_t pixels = s.out_height() * s.out_width();
  const int64_t grain = max_of(1, kWork / max_of(1, s.channels * s.window_height * s.window_width));
  parallel_for(s.batch * pixels, grain, [&](Range range) {
    for (int64_t pixel = range.begin; pixel < range.end; ++pixel) {
      const float* image = args.x.f32() + pixel / pixels * s.height * s.width * s.channels;
      const Window window = window_of(s, pixel % pixels / s.out_width(), pixel % s.out_width());
      float* y = args.y.f32() + pixel * s.channels;
      int32_t* places = args.places == nullptr ? nullptr : args.places + pixel * s.channels;
      args.kind == Pooling::kMax ? take_largest(s, window, image, y, places)
                                 : take_mean(s, window, image, y);
    }
  });
}

// Each image is one thread's, so the order of the sums is fixed.
void pool_backward(Stream&, const PoolBackward& args) {
  const PoolShape& s = args.shape;
  CHECK(args.kind == Pooling::kMax ? args.places != nullptr : s.padding == 0);
  const int64_t pixels = s.out_height() * s.out_width(), values = s.height * s.width * s.channels;
  parallel_for(s.batch, max_of(1, kWork / max_of(1, values)), [&](Range range) {
    for (int64_t image = range.begin; image < range.end; ++image) {
      float* dx = args.dx.f32() + image * values;
      __builtin_memset(dx, 0, static_cast<size_t>(values) * sizeof(float));
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        const int64_t at = (image * pixels + pixel) * s.channels;
        const float* dy = args.dy.f32() + at;
        if (args.kind == Pooling::kAverage) {
          spread_mean(s, window_of(s, pixel / s.out_width(), pixel % s.out_width()), dy, dx);
          continue;
        }
        for (int64_t c = 0; c < s.channels; ++c) dx[args.places[at + c] * s.channels + c] += dy[c];
      }
    }
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
