#include "kernels/ops/elementwise.h"

#include <type_traits>

#include "kernels/device/cuda/launch.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dispatch.cuh"
#include "kernels/ops/dropout.h"
#include "kernels/ops/geometry.h"
#include "kernels/ops/rounding.h"

namespace lockstep::kernels::cuda {

namespace {

template <class T, int N>
__global__ void __launch_bounds__(kElementThreads) fill_all(T* out, int64_t count, float value) {
  for_own_elements<T, N>(count, [&](auto pack, int64_t at) {
    float values[pack.kCount];
    for (float& v : values) v = value;
    store_values(out + at, values);
  });
}

// Converts T to U, 16 bytes of T at a time.
template <class T, class U, int N>
__global__ void __launch_bounds__(kElementThreads) convert(const T* x, U* out, int64_t count) {
  for_own_elements<T, N>(count, [&](auto pack, int64_t at) {
    float values[pack.kCount];
    load_values(values, x + at);
    store_values(out + at, values);
  });
}

// Rounds like the copies of an optimizer (update_tensors.cuh).
template <int N>
__global__ void __launch_bounds__(kElementThreads)
    round_stochastic(const float* x, Bf16* out, int64_t count, uint64_t key, ElementIndex index) {
  for_own_elements<float, N>(count, [&](auto pack, int64_t at) {
    float values[pack.kCount];
    load_values(values, x + at);
    for (int i = 0; i < pack.kCount; ++i) {
      const uint64_t random = mixed_bits(key + static_cast<uint64_t>(index_of(index, at + i)));
      const uint32_t bits = round_stochastically(bits_of_float(values[i]), random);
      values[i] = float_of_bits(bits << 16);  // exact in bf16, so storing it does not round again
    }
    store_values(out + at, values);
  });
}

template <class T, int N>
__global__ void __launch_bounds__(kElementThreads)
    multiply(const T* x, T* out, int64_t count, float factor, const float* device_factor) {
  if (device_factor) factor *= *device_factor;
  for_own_elements<T, N>(count, [&](auto pack, int64_t at) {
    float values[pack.kCount];
    load_values(values, x + at);
    for (float& value : values) value *= factor;
    store_values(out + at, values);
  });
}

template <class T, int N>
__global__ void __launch_bounds__(kElementThreads)
    drop_out(const T* x, T* out, int64_t count, uint64_t key, uint32_t threshold, float factor) {
  for_own_elements<T, N>(count, [&](auto pack, int64_t at) {
    float values[pack.kCount];
    load_values(values, x + at);
    for (int i = 0; i < pack.kCount; ++i) {
      values[i] = is_kept(key, at + i, threshold) ? values[i] * factor : 0.0f;
    }
    store_values(out + at, values);
  });
}

template <class T, int N>
__global__ void __launch_bounds__(kElementThreads)
    add_both(const T* a, const T* b, T* out, int64_t count) {
  for_own_elements<T, N>(count, [&](auto pack, int64_t at) {
    float left[pack.kCount], right[pack.kCount];
    load_values(left, a + at);
    load_values(right, b + at);
    for (int i = 0; i < pack.kCount; ++i) left[i] += right[i];
    store_values(out + at, left);
  });
}

__global__ void __launch_bounds__(kElementThreads) copy_block(CopyRows args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= args.rows * args.width) return;
  const int64_t row = at / args.width, column = at % args.width;
  args.to[row * args.to_stride + column] = args.from[row * args.from_stride + column];
}

}  // namespace

void fill(Stream& stream, const Fill& args) {
  dispatch({.dtype = args.out.dtype, .begins = {args.out.data}}, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("fill", args.count, N), fill_all<T, N>, elements_of<T>(args.out),
           args.count, args.value);
  });
}

void cast(Stream& stream, const Cast& args) {
  const PackedRows rows{.dtype = args.x.dtype, .begins = {args.x.data, args.out.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    const LaunchShape shape = elements_shape("cast", args.count, N);
    const T* x = elements_of<T>(args.x);
    if constexpr (std::is_same_v<T, float>) {
      if (args.out.dtype == DType::kBf16 && args.rounding_seed != 0) {
        launch(stream, shape, round_stochastic<N>, x, args.out.bf16(), args.count,
               rounding_key(args.rounding_seed, args.step), args.index);
        return;
      }
    }
    if (args.out.dtype == DType::kF32) {
      launch(stream, shape, convert<T, float, N>, x, args.out.f32(), args.count);
    } else {
      launch(stream, shape, convert<T, Bf16, N>, x, args.out.bf16(), args.count);
    }
  });
}

void scale(Stream& stream, const Scale& args) {
  const PackedRows rows{.dtype = args.out.dtype, .begins = {args.x.data, args.out.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("scale", args.count, N), multiply<T, N>, elements_of<T>(args.x),
           elements_of<T>(args.out), args.count, args.factor, args.device_factor);
  });
}

void dropout(Stream& stream, const Dropout& args) {
  const PackedRows rows{.dtype = args.out.dtype, .begins = {args.x.data, args.out.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("dropout", args.count, N), drop_out<T, N>, elements_of<T>(args.x),
           elements_of<T>(args.out), args.count, args.key + static_cast<uint64_t>(args.first),
           dropout_threshold(args.probability), dropout_scale(args.probability));
  });
}

void add(Stream& stream, const Add& args) {
  const PackedRows rows{.dtype = args.out.dtype,
                        .begins = {args.a.data, args.b.data, args.out.data}};
  dispatch(rows, [&]<class T, int N>(Pack<T, N>) {
    launch(stream, elements_shape("add", args.count, N), add_both<T, N>, elements_of<T>(args.a),
           elements_of<T>(args.b), elements_of<T>(args.out), args.count);
  });
}

void copy_rows(Stream& stream, const CopyRows& args) {
  launch(stream, elements_shape("copy_rows", args.rows * args.width, 1), copy_block, args);
}

}  // namespace lockstep::kernels::cuda
