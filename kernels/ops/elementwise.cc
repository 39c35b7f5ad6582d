#include "kernels/ops/elementwise.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/dropout.h"
#include "kernels/ops/rounding.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kGrain = 32768;

inline Vec load_bf16(const Bf16* p, int64_t n) {
  HalfVec v = {};
  if (n == kLanes) {
    __builtin_memcpy(&v, p, sizeof v);
  } else {
    for (int64_t i = 0; i < n; ++i) v[i] = p[i].bits;
  }
  return from_bf16(v);
}

inline void store_bf16(Bf16* p, Vec value, int64_t n) {
  const HalfVec v = to_bf16(value);
  if (n == kLanes) {
    __builtin_memcpy(static_cast<void*>(p), &v, sizeof v);
  } else {
    for (int64_t i = 0; i < n; ++i) p[i].bits = v[i];
  }
}

inline Vec load_any(const ConstView& view, int64_t at, int64_t n) {
  return view.dtype == DType::kF32 ? load_n(static_cast<const float*>(view.data) + at, n)
                                   : load_bf16(static_cast<const Bf16*>(view.data) + at, n);
}

inline void store_any(const View& view, int64_t at, Vec value, int64_t n) {
  if (view.dtype == DType::kF32) {
    store_n(static_cast<float*>(view.data) + at, value, n);
  } else {
    store_bf16(static_cast<Bf16*>(view.data) + at, value, n);
  }
}

template <class Body>
void parallel_vectors(int64_t count, Body body) {
  parallel_for(count, kGrain, [&](Range range) {
    for_vectors(range.end - range.begin, [&](int64_t i, int64_t n) { body(range.begin + i, n); });
  });
}

// Rounds elements whose indices are consecutive; `key` includes the index of the first one.
void round_run(const float* x, Bf16* out, int64_t count, uint64_t key) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    __builtin_memcpy(&bits, x + i, sizeof bits);
    out[i].bits = round_stochastically(bits, mixed_bits(key + static_cast<uint64_t>(i)));
  }
}

void round_range(const Cast& args, Range range) {
  const uint64_t key = rounding_key(args.rounding_seed, args.step);
  const int64_t columns = args.index.columns;
  for (int64_t i = range.begin, end = 0; i < range.end; i = end) {
    end = columns == 0 ? range.end : min_of(range.end, (i / columns + 1) * columns);
    round_run(args.x.f32() + i, args.out.bf16() + i, end - i,
              key + static_cast<uint64_t>(index_of(args.index, i)));
  }
}

}  // namespace

void fill(Stream&, const Fill& args) {
  parallel_vectors(args.count,
                   [&](int64_t at, int64_t n) { store_any(args.out, at, all(args.value), n); });
}

void cast(Stream&, const Cast& args) {
  if (args.x.dtype == DType::kF32 && args.out.dtype == DType::kBf16) {
    if (args.rounding_seed != 0) {
      parallel_for(args.count, kGrain, [&](Range range) { round_range(args, range); });
      return;
    }
    const float* x = args.x.f32();
    Bf16* out = args.out.bf16();
    parallel_vectors(args.count,
                     [=](int64_t at, int64_t n) { store_bf16(out + at, load_n(x + at, n), n); });
    return;
  }
  parallel_vectors(args.count, [&](int64_t at, int64_t n) {
    store_any(args.out, at, load_any(args.x, at, n), n);
  });
}

void scale(Stream&, const Scale& args) {
  const float factor = args.device_factor ? args.factor * *args.device_factor : args.factor;
  parallel_vectors(args.count, [&](int64_t at, int64_t n) {
    store_any(args.out, at, load_any(args.x, at, n) * factor, n);
  });
}

void dropout(Stream&, const Dropout& args) {
  const uint32_t threshold = dropout_threshold(args.probability);
  const float factor = dropout_scale(args.probability);
  parallel_vectors(args.count, [&](int64_t at, int64_t n) {
    const Vec zero = {};
    Vec factors = zero;
    for (int64_t i = 0; i < n; ++i) {
      if (is_kept(args.key, args.first + at + i, threshold)) factors[i] = factor;
    }
    const Vec x = load_any(args.x, at, n);
    store_any(args.out, at, factors > zero ? x * factors : zero, n);
  });
}

void add(Stream&, const Add& args) {
  parallel_vectors(args.count, [&](int64_t at, int64_t n) {
    store_any(args.out, at, load_any(args.a, at, n) + load_any(args.b, at, n), n);
  });
}

void copy_rows(Stream&, const CopyRows& args) {
  if (args.width == 0) return;
  parallel_for(args.rows, max_of(kGrain / args.width, int64_t{1}), [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r) {
      __builtin_memcpy(args.to + r * args.to_stride, args.from + r * args.from_stride,
                       static_cast<size_t>(args.width) * sizeof(float));
    }
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
