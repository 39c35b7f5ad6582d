#include "kernels/ops/embedding.h"

#include "kernels/device/parallel.h"
#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"
#include "kernels/ops/simd.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

// Threads take blocks of columns, so that each element is summed by one thread, in a fixed order.
constexpr int64_t kColumnBlock = 64;
constexpr int64_t kRowGrain = 64;

inline void add_row(float* to, const float* from, int64_t count) {
  for_vectors(count, [&](int64_t i, int64_t n) {
    store_n(to + i, load_n(to + i, n) + load_n(from + i, n), n);
  });
}

}  // namespace

void embedding_forward(Stream&, const EmbeddingForward& args) {
  const float* table = args.token_table.f32();
  const float* positions = args.position_table.f32();
  const float* added = args.row.f32();
  float* out = args.out.f32();
  const int64_t width = args.width, sequence = args.sequence;
  parallel_for(args.batch * sequence, kRowGrain, [&](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const int64_t token = args.tokens[row] - args.vocabulary_begin;
      const bool here = token >= 0 && token < args.vocabulary;
      const float* t = here ? table + token * width : nullptr;
      const float* p = positions ? positions + row % sequence * width : nullptr;
      float* o = out + row * width;
      for_vectors(width, [&](int64_t i, int64_t n) {
        Vec v = {};
        if (t) v = load_n(t + i, n);
        if (p) v += load_n(p + i, n);
        if (added) v += load_n(added + i, n);
        store_n(o + i, v, n);
      });
    }
  });
}

void embedding_backward(Stream&, const EmbeddingBackward& args) {
  const float* dout = args.dout.f32();
  float* dtable = args.dtoken_table.f32();
  float* dpositions = args.dposition_table.f32();
  const int64_t width = args.width, sequence = args.sequence;
  const int64_t blocks = (width + kColumnBlock - 1) / kColumnBlock;
  parallel_for(blocks, 1, [&](Range range) {
    const int64_t begin = range.begin * kColumnBlock;
    const int64_t count = min_of(range.end * kColumnBlock, width) - begin;
    for (int64_t row = 0; row < args.batch * sequence; ++row) {
      const float* d = dout + row * width + begin;
      const int64_t token = args.tokens[row] - args.vocabulary_begin;
      if (dtable && token >= 0 && token < args.vocabulary) {
        add_row(dtable + token * width + begin, d, count);
      }
      if (dpositions) add_row(dpositions + row % sequence * width + begin, d, count);
    }
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
