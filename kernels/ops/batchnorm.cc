#include "kernels/ops/batchnorm.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kParts = batchnorm_parts(DeviceType::kCpu);
constexpr int64_t kRowBlock = 64;       // rows whose sums are fp32
constexpr int64_t kChannelBlock = 256;  // channels whose factors are on the stack
constexpr int64_t kWork = 16384;        // values that are worth a thread

Vec inverse_deviation(Vec variance, float epsilon) {
  Vec v = variance + epsilon;
  for (int i = 0; i < kLanes; ++i) v[i] = 1.0f / __builtin_sqrtf(v[i]);
  return v;
}

// A vector of channels in consecutive rows.
struct Strip {
  int64_t begin = 0;  // rows
  int64_t end = 0;
  int64_t channel = 0;
  int64_t lanes = 0;
};
struct TwoSums {
  Vec first = {};
  Vec second = {};
};

void add_lanes(double* to, Vec values, int64_t lanes) {
  for (int64_t i = 0; i < lanes; ++i) to[i] += static_cast<double>(values[i]);
}

// Sums rows in parts: strip_sums(strip) returns those of a strip. Writes sums[2C+1].
template <class StripSums>
void sum_rows(int64_t rows, int64_t channels, double* parts, double* sums, StripSums strip_sums) {
  parallel_for(kParts, rows * channels < kWork ? kParts : 1, [&](Range range) {
    for (int64_t part = range.begin; part < range.end; ++part) {
      double* own = parts + part * 2 * channels;
      __builtin_memset(own, 0, static_cast<size_t>(2 * channels) * sizeof(double));
      const int64_t end = rows * (part + 1) / kParts;
      for (int64_t row = rows * part / kParts; row < end; row += kRowBlock) {
        for_vectors(channels, [&](int64_t i, int64_t n) {
          const TwoSums two = strip_sums(Strip{row, min_of(row + kRowBlock, end), i, n});
          add_lanes(own + i, two.first, n);
          add_lanes(own + channels + i, two.second, n);
        });
      }
    }
  });
  for (int64_t i = 0; i < 2 * channels; ++i) {
    double sum = 0;
    for (int64_t part = 0; part < kParts; ++part) sum += parts[part * 2 * channels + i];
    sums[i] = sum;
  }
  sums[2 * channels] = static_cast<double>(rows);
}

// Calls body(row, channel, lanes) for all vectors of a range of rows, block by block of channels,
// for each of which prepare(first channel, count) has been called.
template <class Prepare, class Body>
void for_rows(const Range& range, int64_t channels, Prepare prepare, Body body) {
  for (int64_t first = 0; first < channels; first += kChannelBlock) {
    const int64_t count = min_of(kChannelBlock, channels - first);
    prepare(first, count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      for_vectors(count, [&](int64_t i, int64_t n) { body(row * channels + first, i, n); });
    }
  }
}

int64_t row_grain(int64_t channels) {
  return max_of(1, kWork / max_of(1, channels));
}

}  // namespace

void batchnorm_sums(Stream&, const BatchNormSums& args) {
  CHECK(args.workspace.bytes >= batchnorm_workspace(args.channels, DeviceType::kCpu));
  const float* x = args.x.f32();
  sum_rows(args.rows, args.channels, static_cast<double*>(args.workspace.data), args.sums,
           [&](const Strip& strip) {
             const Vec shift = load_n(args.shift + strip.channel, strip.lanes);
             TwoSums sums;
             for (int64_t row = strip.begin; row < strip.end; ++row) {
               const Vec d = load_n(x + row * args.channels + strip.channel, strip.lanes) - shift;
               sums.first += d;
               sums.second += d * d;
             }
             return sums;
           });
}

void batchnorm_moments(Stream&, const BatchNormMoments& args) {
  const double rows = args.sums[2 * args.channels];
  for (int64_t c = 0; c < args.channels; ++c) {
    const double mean = args.sums[c] / rows;
    const double variance = args.sums[args.channels + c] / rows - mean * mean;
    args.mean[c] = static_cast<float>(static_cast<double>(args.shift[c]) + mean);
    args.variance[c] = variance < 0 ? 0.0f : static_cast<float>(variance);
  }
}

void batchnorm_forward(Stream&, const BatchNormForward& args) {
  const float* x = args.x.f32();
  const float* residual = args.residual.f32();
  float* y = args.y.f32();
  parallel_for(args.rows, row_grain(args.channels), [&](Range range) {
    alignas(64) float factors[kChannelBlock];
    alignas(64) float offsets[kChannelBlock];
    const auto prepare = [&](int64_t first, int64_t count) {
      for_vectors(count, [&](int64_t i, int64_t n) {
        const int64_t c = first + i;
        const Vec factor = load_n(args.weight + c, n) *
                           inverse_deviation(load_n(args.variance + c, n), args.epsilon);
        store_n(factors + i, factor, n);
        store_n(offsets + i, load_n(args.bias + c, n) - load_n(args.mean + c, n) * factor, n);
      });
    };
    for_rows(range, args.channels, prepare, [&](int64_t at, int64_t i, int64_t n) {
      Vec v = load_n(x + at + i, n) * load_n(factors + i, n) + load_n(offsets + i, n);
      if (residual) v += load_n(residual + at + i, n);
      if (args.relu) v = v < Vec{} ? Vec{} : v;  // NaN stays NaN
      store_n(y + at + i, v, n);
    });
  });
}

void batchnorm_backward_sums(Stream&, const BatchNormBackwardSums& args) {
  const int64_t channels = args.channels;
  CHECK(args.workspace.bytes >= batchnorm_workspace(channels, DeviceType::kCpu));
  float* dy = args.dy.f32();
  const float* y = args.y.f32();
  const float* x = args.x.f32();
  float* dresidual = args.dresidual.f32();
  sum_rows(args.rows, channels, static_cast<double*>(args.workspace.data), args.sums,
           [&](const Strip& strip) {
             const int64_t n = strip.lanes;
             const Vec mean = load_n(args.mean + strip.channel, n);
             const Vec factor =
                 inverse_deviation(load_n(args.variance + strip.channel, n), args.epsilon);
             TwoSums sums;
             for (int64_t row = strip.begin; row < strip.end; ++row) {
               const int64_t at = row * channels + strip.channel;
               Vec d = load_n(dy + at, n);
               if (y) {
                 d = load_n(y + at, n) <= Vec{} ? Vec{} : d;
                 store_n(dy + at, d, n);
               }
               if (dresidual) {
                 store_n(dresidual + at, args.adds_dresidual ? load_n(dresidual + at, n) + d : d,
                         n);
               }
               sums.first += d;
               sums.second += d * ((load_n(x + at, n) - mean) * factor);
             }
             return sums;
           });
  for (int64_t c = 0; c < channels; ++c) {
    args.dbias[c] += static_cast<float>(args.sums[c]);
    args.dweight[c] += static_cast<float>(args.sums[channels + c]);
  }
}

// dx = d * slope + x * x_slope + offset, with factors of each channel.
void batchnorm_backward(Stream&, const BatchNormBackward& args) {
  const float* dy = args.dy.f32();
  const float* x = args.x.f32();
  float* dx = args.dx.f32();
  const int64_t channels = args.channels;
  const double rows = args.sums[2 * channels];
  parallel_for(args.rows, row_grain(channels), [&](Range range) {
    alignas(64) float slopes[kChannelBlock];
    alignas(64) float hat_slopes[kChannelBlock];
    alignas(64) float offsets[kChannelBlock];
    alignas(64) float means[kChannelBlock];
    const auto prepare = [&](int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t c = first + i;
        const float factor = 1.0f / __builtin_sqrtf(args.variance[c] + args.epsilon);
        slopes[i] = args.weight[c] * factor;
        hat_slopes[i] = -slopes[i] * factor * static_cast<float>(args.sums[channels + c] / rows);
        offsets[i] = -slopes[i] * static_cast<float>(args.sums[c] / rows);
        means[i] = args.mean[c];
      }
    };
    for_rows(range, channels, prepare, [&](int64_t at, int64_t i, int64_t n) {
      const Vec distance = load_n(x + at + i, n) - load_n(means + i, n);
      store_n(dx + at + i,
              load_n(dy + at + i, n) * load_n(slopes + i, n) +
                  (distance * load_n(hat_slopes + i, n) + load_n(offsets + i, n)),
              n);
    });
  });
}

void batchnorm_running(Stream&, const BatchNormRunning& args) {
  const double rows = *args.rows;
  const auto correction = static_cast<float>(rows > 1 ? rows / (rows - 1) : 1.0);
  for (int64_t c = 0; c < args.channels; ++c) {
    args.dmean[c] += args.factor * (args.running_mean[c] - args.mean[c]);
    args.dvariance[c] += args.factor * (args.running_variance[c] - args.variance[c] * correction);
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
