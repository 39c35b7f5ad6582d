#include "kernels/ops/classifier.h"

#include <cmath>

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr float kLowest = -3.402823466e38f;

// Returns the number of this shard's columns that are not padding.
int64_t live_columns(const ClassifierShape& shape) {
  return max_of(0, min_of(shape.columns, shape.vocabulary - shape.column_begin));
}

int64_t row_grain(const ClassifierShape& shape) {
  return max_of(1, 16384 / max_of(1, shape.columns));
}

float row_max(const float* row, int64_t count) {
  Vec highest = all(kLowest);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) highest = max_vec(load(row + i), highest);
  float result = max_of(highest);
  for (; i < count; ++i) result = row[i] > result ? row[i] : result;
  return result;
}

// Returns the sum of exp(row - shift); shift must be at least the row's maximum. Stores the
// exponentials to `out`, which may be `row` or null.
float exp_sum(const float* row, int64_t count, float shift, float* out) {
  Vec sum = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec e = exp_bounded(load(row + i) - shift);
    if (out) store(out + i, e);
    sum += e;
  }
  float result = sum_of(sum);
  if (i < count) {
    const Vec e = exp_bounded(load_part(row + i, count - i) - shift);
    if (out) store_part(out + i, e, count - i);
    for (int64_t j = 0; j < count - i; ++j) result += e[j];
  }
  return result;
}

void scale_row(float* row, int64_t count, float factor) {
  for_vectors(count,
              [&](int64_t i, int64_t n) { store_n(row + i, load_n(row + i, n) * factor, n); });
}

struct Gradient {
  float* exponentials;
  int64_t live;
  int64_t target;  // column in this shard; may be outside it
  bool counted;
  float sum;
  float scale;
};

void gradient_row(const Gradient& g, int64_t columns) {
  if (!g.counted) {
    __builtin_memset(g.exponentials, 0, static_cast<size_t>(columns) * sizeof(float));
    return;
  }
  scale_row(g.exponentials, g.live, g.scale / g.sum);
  if (g.target >= 0 && g.target < g.live) g.exponentials[g.target] -= g.scale;
  for (int64_t v = g.live; v < columns; ++v) g.exponentials[v] = 0.0f;
}

}  // namespace

void classifier(Stream&, const Classifier& args) {
  const ClassifierShape& shape = args.shape;
  CHECK(shape.column_begin == 0 && shape.columns >= shape.vocabulary);
  const int64_t live = live_columns(shape);
  float* logits = args.logits.f32();
  parallel_for(shape.rows, row_grain(shape), [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r) {
      float* row = logits + r * shape.columns;
      const int64_t target = args.targets[r];
      CHECK(target < live);
      const bool counted = target >= 0;
      if (!counted && !args.gradient) {
        args.losses[r] = 0.0f;
        continue;
      }
      const float highest = row_max(row, live);
      const float target_logit = counted ? row[target] - highest : 0.0f;
      const float sum = exp_sum(row, live, highest, args.gradient ? row : nullptr);
      args.losses[r] = counted ? logf(sum) - target_logit : 0.0f;
      if (args.gradient) {
        gradient_row({.exponentials = row,
                      .live = live,
                      .target = target,
                      .counted = counted,
                      .sum = sum,
                      .scale = args.gradient_scale},
                     shape.columns);
      }
    }
  });
}

// A column beats the target's if its logit is larger, or as large and before it.
void classifier_hits(Stream&, const ClassifierHits& args) {
  const ClassifierShape& shape = args.shape;
  CHECK(shape.column_begin == 0 && shape.columns >= shape.vocabulary);
  const float* logits = args.logits.f32();
  parallel_for(shape.rows, row_grain(shape), [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r) {
      const float* row = logits + r * shape.columns;
      const int64_t target = args.targets[r];
      CHECK(target < shape.vocabulary);
      const bool known = target >= 0 && row[target] == row[target];  // NaN is not right
      int64_t left = known ? args.top : 0;  // columns that may beat it, and its own
      for (int64_t v = 0; v < shape.vocabulary && left > 0; ++v) {
        left -= row[v] > row[target] || (row[v] == row[target] && v < target) ? 1 : 0;
      }
      args.hits[r] = left > 0 ? 1.0f : 0.0f;
    }
  });
}

void classifier_max(Stream&, const ClassifierMax& args) {
  const ClassifierShape& shape = args.shape;
  const float* logits = args.logits.f32();
  const int64_t live = live_columns(shape);
  parallel_for(shape.rows, row_grain(shape), [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r) {
      args.maxima[r] = row_max(logits + r * shape.columns, live);
    }
  });
}

void classifier_sum(Stream&, const ClassifierSum& args) {
  const ClassifierShape& shape = args.shape;
  float* logits = args.logits.f32();
  const int64_t live = live_columns(shape);
  parallel_for(shape.rows, row_grain(shape), [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r) {
      float* row = logits + r * shape.columns;
      const int64_t target = args.targets[r] - shape.column_begin;
      const bool here = args.targets[r] >= 0 && target >= 0 && target < live;
      args.target_logits[r] = here ? row[target] - args.maxima[r] : 0.0f;
      args.sums[r] = exp_sum(row, live, args.maxima[r], row);
    }
  });
}

void classifier_finish(Stream&, const ClassifierFinish& args) {
  const ClassifierShape& shape = args.shape;
  float* logits = args.logits.f32();
  const int64_t live = live_columns(shape);
  parallel_for(shape.rows, row_grain(shape), [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r) {
      const bool counted = args.targets[r] >= 0;
      args.losses[r] = counted ? logf(args.sums[r]) - args.target_logits[r] : 0.0f;
      if (!args.gradient) continue;
      gradient_row({.exponentials = logits + r * shape.columns,
                    .live = live,
                    .target = args.targets[r] - shape.column_begin,
                    .counted = counted,
                    .sum = args.sums[r],
                    .scale = args.gradient_scale},
                   shape.columns);
    }
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
