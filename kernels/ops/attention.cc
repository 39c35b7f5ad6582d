#include "kernels/ops/attention.h"

#include <cmath>

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/product.h"
#include "kernels/ops/simd.h"

// One task is one head of one sample. In backward it is all heads that share keys, so that only one
// thread adds to the gradients of those keys and values. Queries are processed in blocks of kRows.
// The scores of a block against all keys that its last query sees are kept in a strip of scratch,
// so that softmax needs one pass and the four products are ordinary small matrix products. Memory
// is linear in T.
namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr int64_t kRows = kAttentionBlockRows;
constexpr float kLowest = -3.402823466e38f;

// The scratch of one thread; see attention_scratch_floats() for its size.
struct Scratch {
  float* k_transposed;  // [HD, stride], times 1/sqrt(HD); columns from T up to the stride are 0
  float* v_transposed;  // [HD, stride]
  float* scores;        // [kRows, stride]
  float* dscores;       // [kRows, stride]
  int64_t stride;
};

Scratch scratch_of(const AttentionShape& shape, const Workspace& workspace, int index) {
  const int64_t stride = attention_stride(shape);
  float* base = static_cast<float*>(workspace.data) + index * attention_scratch_floats(shape);
  float* scores = base + 2 * shape.head_dim * stride;
  return {base, base + shape.head_dim * stride, scores, scores + kRows * stride, stride};
}

// to[d, t] = from[t, d] * factor for T rows, row_stride apart; 0 for t from T up to the stride.
void transpose(const float* from, int64_t row_stride, float factor, const AttentionShape& shape,
               int64_t stride, float* to) {
  for (int64_t t = 0; t < stride; t += kLanes) {
    const int64_t rows = max_of(0, min_of(kLanes, shape.sequence - t));
    for (int64_t d = 0; d < shape.head_dim; d += kLanes) {
      const int64_t columns = min_of(kLanes, shape.head_dim - d);
      Vec square[kLanes] = {};
      for (int64_t i = 0; i < rows; ++i) {
        square[i] = load_n(from + (t + i) * row_stride + d, columns) * factor;
      }
      transpose_square(square);
      for (int64_t i = 0; i < columns; ++i) store(to + (d + i) * stride + t, square[i]);
    }
  }
}

// The offsets of one head of one sample.
struct Offsets {
  int64_t q, k, v;  // in qkv, whose rows are C+2D apart
  int64_t out;      // in out, whose rows are C apart
  int64_t lse;
};

Offsets offsets_of(const AttentionShape& shape, int64_t sample, int64_t head) {
  const int64_t row = sample * shape.sequence;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const int64_t k = row * shape.qkv_width() + shape.width() + kv_head * shape.head_dim;
  return {.q = row * shape.qkv_width() + head * shape.head_dim,
          .k = k,
          .v = k + shape.kv_width(),
          .out = row * shape.width() + head * shape.head_dim,
          .lse = (sample * shape.heads + head) * shape.sequence};
}

// One head of one sample: pointers to its first row.
struct Head {
  const float* q;
  const float* k;
  const float* v;
  int64_t qkv_row;
  int64_t out_row;
};

Head head_of(const float* qkv, const AttentionShape& shape, const Offsets& at) {
  return {qkv + at.q, qkv + at.k, qkv + at.v, shape.qkv_width(), shape.width()};
}

void check(const AttentionShape& shape, const Workspace& workspace) {
  CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
  CHECK(workspace.bytes >= attention_workspace(shape, DeviceType::kCpu));
}

// A block of queries: [begin, begin + rows), against the keys [0, keys).
struct Block {
  int64_t begin;
  int64_t rows;
  int64_t keys;          // seen by the last query
  int64_t keys_rounded;  // up to whole vectors
};

Block block_of(int64_t begin, const AttentionShape& shape) {
  const int64_t rows = min_of(kRows, shape.sequence - begin);
  const int64_t keys = shape.keys_of(begin + rows - 1);
  return {begin, rows, keys, round_up(keys, kLanes)};
}

// strip[rows, keys_rounded] = rows of x (x_row apart) times the transposed matrix.
void strip_product(const float* x, int64_t x_row, const float* transposed, const Block& block,
                   const AttentionShape& shape, int64_t stride, float* strip) {
  product({.a = x + block.begin * x_row,
           .a_row = x_row,
           .b = transposed,
           .b_row = stride,
           .c = strip,
           .c_row = stride,
           .m = block.rows,
           .n = block.keys_rounded,
           .k = shape.head_dim});
}

// Returns the scores of the keys up to `last`, else the lowest float.
inline Vec masked(Vec scores, int64_t key, int64_t last) {
  const IntVec keys = iota() + static_cast<int32_t>(key);
  return keys <= static_cast<int32_t>(last) ? scores : all(kLowest);
}

// row <- exp(row - max) over the keys up to `last`, 0 for later keys.
struct SoftmaxRow {
  float sum;
  float lse;
};

SoftmaxRow softmax_row(float* row, int64_t last, int64_t keys_rounded) {
  const int64_t whole = (last + 1) / kLanes * kLanes;
  Vec highest = all(kLowest);
  for (int64_t j = 0; j < whole; j += kLanes) highest = max_vec(load(row + j), highest);
  if (whole <= last) highest = max_vec(masked(load(row + whole), whole, last), highest);
  const float shift = max_of(highest);
  Vec sum = {};
  for (int64_t j = 0; j < whole; j += kLanes) {
    const Vec e = exp_bounded(load(row + j) - shift);
    store(row + j, e);
    sum += e;
  }
  for (int64_t j = whole; j < keys_rounded; j += kLanes) {
    const Vec e = exp_bounded(masked(load(row + j), j, last) - shift);
    store(row + j, e);
    sum += e;
  }
  const float total = sum_of(sum);
  return {total, shift + logf(total)};
}

void forward_head(const Head& head, const AttentionShape& shape, const Scratch& scratch, float* out,
                  float* lse) {
  const float factor = 1.0f / sqrtf(static_cast<float>(shape.head_dim));
  transpose(head.k, head.qkv_row, factor, shape, scratch.stride, scratch.k_transposed);
  for (int64_t begin = 0; begin < shape.sequence; begin += kRows) {
    const Block block = block_of(begin, shape);
    strip_product(head.q, head.qkv_row, scratch.k_transposed, block, shape, scratch.stride,
                  scratch.scores);
    float inverse[kRows];
    for (int64_t i = 0; i < block.rows; ++i) {
      float* row = scratch.scores + i * scratch.stride;
      const SoftmaxRow softmax = softmax_row(row, shape.keys_of(begin + i) - 1, block.keys_rounded);
      inverse[i] = 1.0f / softmax.sum;
      if (lse) lse[begin + i] = softmax.lse;
    }
    float* block_out = out + begin * head.out_row;
    product({.a = scratch.scores,
             .a_row = scratch.stride,
             .b = head.v,
             .b_row = head.qkv_row,
             .c = block_out,
             .c_row = head.out_row,
             .m = block.rows,
             .n = shape.head_dim,
             .k = block.keys});
    for (int64_t i = 0; i < block.rows; ++i) {
      float* row = block_out + i * head.out_row;
      for_vectors(shape.head_dim, [&](int64_t j, int64_t n) {
        store_n(row + j, load_n(row + j, n) * inverse[i], n);
      });
    }
  }
}

float dot(const float* a, const float* b, int64_t count) {
  Vec sum = {};
  for_vectors(count, [&](int64_t i, int64_t n) { sum += load_n(a + i, n) * load_n(b + i, n); });
  return sum_of(sum);
}

struct HeadGradients {
  const float* dout;
  const float* out;
  const float* lse;
  float* dq;
  float* dk;
  float* dv;
};

// scores <- P = exp(scores - lse); dscores <- P * (dP - sum(dout * out)) / sqrt(HD), 0 for keys
// that the query does not see.
void score_gradients(const HeadGradients& g, const Head& head, const Block& block,
                     const AttentionShape& shape, const Scratch& scratch) {
  const float factor = 1.0f / sqrtf(static_cast<float>(shape.head_dim));
  for (int64_t i = 0; i < block.rows; ++i) {
    const int64_t query = block.begin + i;
    const int64_t last = shape.keys_of(query) - 1;
    const float delta =
        dot(g.dout + query * head.out_row, g.out + query * head.out_row, shape.head_dim);
    const float lse = g.lse[query];
    float* p = scratch.scores + i * scratch.stride;
    float* d = scratch.dscores + i * scratch.stride;
    for (int64_t j = 0; j < block.keys_rounded; j += kLanes) {
      Vec scores = load(p + j);
      if (j + kLanes > last) scores = masked(scores, j, last);
      const Vec probability = exp_bounded(scores - lse);
      store(p + j, probability);
      store(d + j, probability * (load(d + j) - delta) * factor);
    }
  }
}

// to[keys, HD] += strip^T x. With `fresh`, rows of keys that no earlier block has seen are set
// instead of added to.
void scatter_product(const float* strip, const float* x, int64_t x_row, const Block& block,
                     const AttentionShape& shape, const Scratch& scratch, bool fresh, float* to,
                     int64_t to_row) {
  const int64_t seen = block.begin == 0 ? 0 : shape.keys_of(block.begin - 1);  // by earlier blocks
  Product p{.a = strip,
            .a_row = 1,
            .a_col = scratch.stride,
            .b = x + block.begin * x_row,
            .b_row = x_row,
            .c = to,
            .c_row = to_row,
            .m = seen,
            .n = shape.head_dim,
            .k = block.rows,
            .accumulate = true};
  product(p);
  p.a = strip + seen;
  p.c = to + seen * to_row;
  p.m = block.keys - seen;
  p.accumulate = !fresh;
  product(p);
}

// Expects the transposed keys and values in scratch. The first of the heads that share keys sets dk
// and dv, the others add to them.
void backward_head(const HeadGradients& g, const Head& head, const AttentionShape& shape,
                   const Scratch& scratch, bool first) {
  for (int64_t begin = 0; begin < shape.sequence; begin += kRows) {
    const Block block = block_of(begin, shape);
    strip_product(head.q, head.qkv_row, scratch.k_transposed, block, shape, scratch.stride,
                  scratch.scores);
    strip_product(g.dout, head.out_row, scratch.v_transposed, block, shape, scratch.stride,
                  scratch.dscores);
    score_gradients(g, head, block, shape, scratch);
    scatter_product(scratch.scores, g.dout, head.out_row, block, shape, scratch, first, g.dv,
                    head.qkv_row);
    scatter_product(scratch.dscores, head.q, head.qkv_row, block, shape, scratch, first, g.dk,
                    head.qkv_row);
    product({.a = scratch.dscores,
             .a_row = scratch.stride,
             .b = head.k,
             .b_row = head.qkv_row,
             .c = g.dq + begin * head.qkv_row,
             .c_row = head.qkv_row,
             .m = block.rows,
             .n = shape.head_dim,
             .k = block.keys});
  }
}

// Processes the heads of one sample, from `first` on, that share keys and values.
void backward_group(const AttentionBackward& args, const Scratch& scratch, int64_t sample,
                    int64_t first) {
  const AttentionShape& shape = args.shape;
  const float factor = 1.0f / sqrtf(static_cast<float>(shape.head_dim));
  for (int64_t i = 0; i < shape.heads / shape.kv_heads; ++i) {
    const Offsets at = offsets_of(shape, sample, first + i);
    const Head head = head_of(args.qkv.f32(), shape, at);
    if (i == 0) {
      transpose(head.k, head.qkv_row, factor, shape, scratch.stride, scratch.k_transposed);
      transpose(head.v, head.qkv_row, 1.0f, shape, scratch.stride, scratch.v_transposed);
    }
    float* dqkv = args.dqkv.f32();
    backward_head({.dout = args.dout.f32() + at.out,
                   .out = args.out.f32() + at.out,
                   .lse = args.lse + at.lse,
                   .dq = dqkv + at.q,
                   .dk = dqkv + at.k,
                   .dv = dqkv + at.v},
                  head, shape, scratch, i == 0);
  }
}

}  // namespace

void attention_forward(Stream&, const AttentionForward& args) {
  const AttentionShape& shape = args.shape;
  if (shape.batch * shape.heads == 0) return;
  check(shape, args.workspace);
  const float* qkv = args.qkv.f32();
  float* out = args.out.f32();
  parallel_for(shape.batch * shape.heads, 1, [&](Range range) {
    const Scratch scratch = scratch_of(shape, args.workspace, range.index);
    for (int64_t i = range.begin; i < range.end; ++i) {
      const Offsets at = offsets_of(shape, i / shape.heads, i % shape.heads);
      forward_head(head_of(qkv, shape, at), shape, scratch, out + at.out,
                   args.lse ? args.lse + at.lse : nullptr);
    }
  });
}

void attention_backward(Stream&, const AttentionBackward& args) {
  const AttentionShape& shape = args.shape;
  if (shape.batch * shape.heads == 0) return;
  check(shape, args.workspace);
  parallel_for(shape.batch * shape.kv_heads, 1, [&](Range range) {
    const Scratch scratch = scratch_of(shape, args.workspace, range.index);
    for (int64_t i = range.begin; i < range.end; ++i) {
      const int64_t group = shape.heads / shape.kv_heads;
      backward_group(args, scratch, i / shape.kv_heads, i % shape.kv_heads * group);
    }
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
