#include "kernels/ops/elementwise.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/rounding.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kGrain = 32768;
constexpr int64_t kSumBlock = 16384;
constexpr int64_t kSumSlots = kSquaredNormWorkspace / sizeof(double);

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

inline DoubleVec to_double(FloatHalf v) {
  return __builtin_convertvector(v, DoubleVec);
}

double squares_of(const float* x, int64_t count) {
  DoubleVec low = {}, high = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    FloatHalf halves[2];
    __builtin_memcpy(halves, x + i, sizeof halves);
    const DoubleVec a = to_double(halves[0]), b = to_double(halves[1]);
    low += a * a;
    high += b * b;
  }
  low += high;
  double sum = 0.0;
  for (int lane = 0; lane < kLanes / 2; ++lane) sum += low[lane];
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

// Blocks are numbered across all tensors; slot s adds blocks s, s + kSumSlots, ...
double slot_sum(const SquaredNorm& args, int64_t slot) {
  double sum = 0.0;
  int64_t first = 0;  // number of the tensor's first block
  for (size_t t = 0; t < args.tensors.size(); ++t) {
    const FlatTensor& tensor = args.tensors[t];
    const int64_t blocks = (tensor.count + kSumBlock - 1) / kSumBlock;
    const int64_t skip = (slot - first % kSumSlots + kSumSlots) % kSumSlots;
    for (int64_t block = skip; block < blocks; block += kSumSlots) {
      const int64_t begin = block * kSumBlock;
      sum += squares_of(tensor.data + begin, min_of(kSumBlock, tensor.count - begin));
    }
    first += blocks;
  }
  return sum;
}

// Element indices count from `first` on, as in AdamW's copies.
void round_range(const Cast& args, Range range) {
  const uint64_t key = rounding_key(args.rounding_seed, args.step);
  const float* x = args.x.f32();
  Bf16* out = args.out.bf16();
  for (int64_t i = range.begin; i < range.end; ++i) {
    uint32_t bits = 0;
    __builtin_memcpy(&bits, x + i, sizeof bits);
    out[i].bits =
        round_stochastically(bits, mixed_bits(key + static_cast<uint64_t>(args.first + i)));
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
  parallel_vectors(args.count, [&](int64_t at, int64_t n) {
    store_any(args.out, at, load_any(args.x, at, n) * args.factor, n);
  });
}

void add(Stream&, const Add& args) {
  parallel_vectors(args.count, [&](int64_t at, int64_t n) {
    store_any(args.out, at, load_any(args.a, at, n) + load_any(args.b, at, n), n);
  });
}

void squared_norm(Stream&, const SquaredNorm& args) {
  CHECK(args.workspace.bytes >= kSquaredNormWorkspace);
  double* slots = static_cast<double*>(args.workspace.data);
  int64_t total = 0;
  for (size_t t = 0; t < args.tensors.size(); ++t) total += args.tensors[t].count;
  const int64_t grain = total < 4 * kSumBlock ? kSumSlots : 1;
  parallel_for(kSumSlots, grain, [&](Range range) {
    for (int64_t slot = range.begin; slot < range.end; ++slot) slots[slot] = slot_sum(args, slot);
  });
  double sum = 0.0;
  for (int64_t slot = 0; slot < kSumSlots; ++slot) sum += slots[slot];
  *args.sum = sum;
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
