#include "agent/model/gpt_impl.h"

namespace lockstep {

void Gpt::Impl::forward_product(const Product& product, const ProductOutput& output) {
  ops.matmul_forward(stream, {.x = product.x,
                              .weight = product.weight->product,
                              .bias = bias_of(product),
                              .y = output.y,
                              .pre_activation = output.pre_activation,
                              .m = product.m,
                              .n = product.n,
                              .k = product.k,
                              .activation = output.activation,
                              .precision = options.precision,
                              .workspace = workspace});
}

void Gpt::Impl::backward_product(const Product& product, const ProductGradient& gradient,
                                 GradSink& sink) {
  float* dbias = product.bias == nullptr ? nullptr : sink.buffer(gradient.weight_id + 1);
  ops.matmul_backward(stream, {.dy = gradient.dy,
                               .x = product.x,
                               .weight = product.weight->product,
                               .x_pre_activation = gradient.x_pre_activation,
                               .dx = gradient.dx,
                               .dweight = sink.buffer(gradient.weight_id),
                               .dbias = dbias,
                               .m = product.m,
                               .n = product.n,
                               .k = product.k,
                               .precision = options.precision,
                               .workspace = workspace});
}

void Gpt::Impl::forward_norm(const Norm& norm, ConstView residual, View y,
                             const MicroBatch& batch) {
  ops.layernorm_forward(stream, {.x = norm.h,
                                 .residual = residual,
                                 .residual_out = residual ? norm.h : View(),
                                 .weight = norm.weight->value,
                                 .bias = norm.bias->value,
                                 .y = y,
                                 .mean = norm.mean,
                                 .rstd = norm.rstd,
                                 .rows = batch.rows(),
                                 .width = options.config.width});
}

Status Gpt::Impl::backward_norm(const Norm& norm, bool continues, int64_t weight_id,
                                const MicroBatch& batch, GradSink& sink) {
  const View gradient = scratch_tensor(scratch_at.stream);
  ops.layernorm_backward(stream, {.dy = scratch_tensor(scratch_at.branch),
                                  .h = norm.h,
                                  .weight = norm.weight->value,
                                  .mean = norm.mean,
                                  .rstd = norm.rstd,
                                  .dresidual = continues ? gradient : View(),
                                  .dx = gradient,
                                  .dweight = sink.buffer(weight_id),
                                  .dbias = sink.buffer(weight_id + 1),
                                  .rows = batch.rows(),
                                  .width = options.config.width,
                                  .workspace = workspace});
  return ready_pair(weight_id, sink);
}

Status Gpt::Impl::ready_pair(int64_t weight_id, GradSink& sink) {
  TRY(sink.ready(weight_id + 1));
  return sink.ready(weight_id);
}

AttentionShape Gpt::Impl::attention_shape(const MicroBatch& batch) const {
  return {.batch = batch.input().batch,
          .sequence = batch.input().sequence,
          .heads = options.config.heads / shard.size,
          .head_dim = options.config.head_dim(),
          .kv_heads = options.config.heads / shard.size};
}

}  // namespace lockstep
