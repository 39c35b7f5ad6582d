// The products at the borders of tensor-parallel regions, and what is computed while their sums
// travel (TpRegion::overlap()).
#include "agent/model/transformer/gpt_impl.h"

namespace lockstep::model {

// A chunk of all rows is not a chunk of each part, so parts are summed in one piece.
GptImpl::Sums GptImpl::sums_of(const RegionRows& rows) const {
  if (region.overlap() != Overlap::kChunks || rows.parts > 1) return {rows};
  return {rows, sums_for(rows.count * static_cast<int64_t>(kernels::dtype_bytes(dtype)))};
}

void GptImpl::start_sum(const Sums& sums, const Chunk& chunk) {
  if (sums.count == 1) return region.start_sum_rows(sums.rows);
  const int64_t width = options.config.width;
  const kernels::View place = from_row(sums.rows.whole, chunk.begin, width);
  region.start_sum_rows({.whole = place, .part = place, .count = chunk.rows * width});
}

GptImpl::Chunk GptImpl::nth_chunk(int64_t rows, int64_t chunks, int64_t index) {
  const int64_t begin = rows * index / chunks;
  return {begin, rows * (index + 1) / chunks - begin};
}

Status GptImpl::last_product_forward(const Product& product, const RegionRows& output) {
  const Sums sums = sums_of(output);
  if (sums.count == 1) {
    forward_product(product, {.y = output.whole});
    return region.sum_rows(output, Pass::kForward);
  }
  for (int64_t index = 0; index < sums.count; ++index) {
    const Chunk chunk = nth_chunk(product.m, sums.count, index);
    Product part = product;
    part.m = chunk.rows;
    part.x = from_row(product.x, chunk.begin, product.k);
    forward_product(part, {.y = from_row(output.whole, chunk.begin, product.n)});
    start_sum(sums, chunk);
  }
  return region.finish(Pass::kForward);
}

Status GptImpl::summed_backward(const Product& product, const ProductGradient& gradient,
                                const Sums& sums, GradSink* sink) {
  const bool has_nothing_else = sink == nullptr && sums.count == 1;
  if (region.overlap() == Overlap::kNone || has_nothing_else) {
    backward_product(product, gradient, sink);
    return region.sum_rows(sums.rows, Pass::kBackward);
  }
  for (int64_t index = 0; index < sums.count; ++index) {
    const Chunk chunk = nth_chunk(product.m, sums.count, index);
    Product part = product;
    part.m = chunk.rows;
    backward_product(part,
                     {.dy = from_row(gradient.dy, chunk.begin, product.n),
                      .dx = from_row(gradient.dx, chunk.begin, product.k)},
                     nullptr);
    start_sum(sums, chunk);
  }
  if (sink != nullptr) backward_product(product, {.dy = gradient.dy}, sink);
  return region.finish(Pass::kBackward);
}

Status GptImpl::first_product_backward(Product product, kernels::View input,
                                       const ProductGradient& gradient, const GptBatch& batch,
                                       GradSink& sink) {
  if (!options.splits_backward) {
    TRY_ASSIGN(product.x, gather_rows(input, Pass::kBackward, batch));
  }
  return summed_backward(product, gradient, sums_of(rows_within(gradient.dx, batch)), now(sink));
}

}  // namespace lockstep::model
