#include "agent/model/transformer/gpt_impl.h"

namespace lockstep::model {

const LayerActivations& GptImpl::layer_at(int64_t block, const GptBatch& batch) const {
  return batch.arena().layers[static_cast<size_t>(block - first_layer_block())];
}

kernels::View GptImpl::layer_output(int64_t block, const GptBatch& batch) const {
  const auto next = static_cast<size_t>(block + 1 - first_layer_block());
  const ActivationArena& arena = batch.arena();
  return batch.at(next < arena.layers.size() ? arena.layers[next].input : arena.output);
}

kernels::ConstView GptImpl::stream_in_layer(int64_t block, const GptBatch& batch) const {
  const LayerActivations& at = layer_at(block, batch);
  return batch.at(design().norms_the_stream ? at.norm1 : at.input);
}

kernels::ConstView GptImpl::stream_after_layer(int64_t block, const GptBatch& batch) const {
  const LayerActivations& at = layer_at(block, batch);
  return batch.at(design().norms_the_stream ? at.norm2 : at.post_attention_stream);
}

kernels::ConstView GptImpl::layer_residual(int64_t block, const GptBatch& batch) const {
  if (block == first_layer_block()) return {};
  return stream_after_layer(block - 1, batch);
}

GptImpl::Norm GptImpl::first_norm(int64_t block, std::span<const ParamView> p,
                                  const GptBatch& batch) const {
  const LayerActivations& at = layer_at(block, batch);
  return {.h = batch.at(at.input),
          .weights = layer_weights(block, kNorm1, p),
          .mean = batch.f32(at.mean1),
          .rstd = batch.f32(at.rstd1)};
}

GptImpl::Norm GptImpl::second_norm(int64_t block, std::span<const ParamView> p,
                                   const GptBatch& batch) const {
  const LayerActivations& at = layer_at(block, batch);
  return {.h = batch.at(at.post_attention_stream),
          .weights = layer_weights(block, kNorm2, p),
          .mean = batch.f32(at.mean2),
          .rstd = batch.f32(at.rstd2)};
}

// h1 = input + residual; h2 = h1 + attention(norm1(h1)); output = mlp(norm2(h2)), which the next
// norm adds to h2. With norms_the_stream: h2 = norm1(h1) + attention(norm1(h1)), and the next norm
// adds the output to norm2(h2).
Status GptImpl::layer_forward(int64_t block, std::span<const ParamView> p, GptBatch& batch) {
  TRY(attention_forward(block, p, layer_residual(block, batch), batch));
  TRY(hidden_forward(block, p, batch));
  return mlp_output_forward(block, p, batch);
}

// Writes attention's output to the layer's `post_attention_stream`.
Status GptImpl::attention_forward(int64_t block, std::span<const ParamView> p,
                                  kernels::ConstView residual, GptBatch& batch) {
  const LayerActivations& at = layer_at(block, batch);
  const int64_t width = options.config.width;
  const int64_t split = local_width();
  first_norm_forward(block, p, residual, batch);
  TRY_ASSIGN(const kernels::View x, gather_rows(batch.at(at.norm1), Pass::kForward, batch));
  forward_product({.m = batch.rows(),
                   .n = local_qkv(),
                   .k = width,
                   .x = x,
                   .weights = layer_weights(block, kQkv, p)},
                  {.y = batch.at(at.qkv)});
  if (design().has_rotary()) apply_rotary(batch.at(at.qkv), false, batch);
  ops.attention_forward(stream, {.qkv = batch.at(at.qkv),
                                 .out = batch.at(at.attention),
                                 .lse = batch.f32(at.lse),
                                 .shape = attention_shape(batch),
                                 .workspace = workspace,
                                 .by = attention_by(batch)});
  const RegionRows output = rows_of(batch.at(at.post_attention_stream), batch);
  TRY(last_product_forward({.m = batch.rows(),
                            .n = width,
                            .k = split,
                            .x = batch.at(at.attention),
                            .weights = with_bias_once(layer_weights(block, kAttentionOut, p))},
                           output));
  drop_out(block, DropPlace::kAttention, output.part, output.part, batch);
  return {};
}

void GptImpl::first_norm_forward(int64_t block, std::span<const ParamView> p,
                                 kernels::ConstView residual, GptBatch& batch) {
  const kernels::View y = batch.at(layer_at(block, batch).norm1);
  forward_norm(first_norm(block, p, batch), residual, y, batch);
  if (drops_embedding_after(block)) drop_out(0, DropPlace::kEmbedding, y, y, batch);
}

// First adds the residual stream to `post_attention_stream`.
Status GptImpl::hidden_forward(int64_t block, std::span<const ParamView> p, GptBatch& batch) {
  const LayerActivations& at = layer_at(block, batch);
  forward_norm(second_norm(block, p, batch), stream_in_layer(block, batch), batch.at(at.norm2),
               batch);
  TRY_ASSIGN(const kernels::View x, gather_rows(batch.at(at.norm2), Pass::kForward, batch));
  const Product product{.m = batch.rows(),
                        .n = local_hidden_in(),
                        .k = options.config.width,
                        .x = x,
                        .weights = layer_weights(block, kHidden, p)};
  if (design().mlp != MlpKind::kGelu) {
    forward_product(product, {.y = activation_input(block, batch)});
    activation_forward(block, batch);
    return {};
  }
  forward_product(product, {.y = batch.at(at.hidden),
                            .pre_activation = batch.at(at.hidden_in),
                            .activation = kernels::Activation::kGelu});
  return {};
}

// In evaluation, GELU works in place.
kernels::View GptImpl::activation_input(int64_t block, const GptBatch& batch) const {
  const LayerActivations& at = layer_at(block, batch);
  return batch.at(at.hidden_in >= 0 ? at.hidden_in : at.hidden);
}

void GptImpl::activation_forward(int64_t block, GptBatch& batch) {
  const LayerActivations& at = layer_at(block, batch);
  if (!design().has_swiglu()) {
    ops.gelu_forward(stream, {.x = activation_input(block, batch),
                              .y = batch.at(at.hidden),
                              .count = batch.rows() * local_hidden(),
                              .form = gelu_form()});
    return;
  }
  ops.swiglu_forward(stream, {.gate_up = batch.at(at.hidden_in),
                              .y = batch.at(at.hidden),
                              .rows = batch.rows(),
                              .width = local_hidden()});
}

Status GptImpl::mlp_output_forward(int64_t block, std::span<const ParamView> p, GptBatch& batch) {
  const LayerActivations& at = layer_at(block, batch);
  const RegionRows output = rows_of(layer_output(block, batch), batch);
  TRY(last_product_forward({.m = batch.rows(),
                            .n = options.config.width,
                            .k = local_hidden(),
                            .x = batch.at(at.hidden),
                            .weights = with_bias_once(layer_weights(block, kMlpOut, p))},
                           output));
  drop_out(block, DropPlace::kMlp, output.part, output.part, batch);
  if (block + 1 == options.stage.end) {  // no later norm on this stage adds it
    ops.add(stream, {.a = output.part,
                     .b = stream_after_layer(block, batch),
                     .out = output.part,
                     .count = batch.kept_rows() * options.config.width});
  }
  return {};
}

Status GptImpl::layer_backward(int64_t block, std::span<const ParamView> p, GptBatch& batch,
                               GradSink& sink) {
  TRY(recompute(block, p, batch));
  TRY(mlp_backward(block, p, batch, sink));
  return attention_backward(block, p, batch, sink);
}

Status GptImpl::recompute(int64_t block, std::span<const ParamView> p, GptBatch& batch) {
  if (options.recompute == Recompute::kOps) recompute_ops(block, p, batch);
  if (options.recompute != Recompute::kBlocks) return {};
  TRY(attention_forward(block, p, {}, batch));  // forward has already added the stream to the input
  return hidden_forward(block, p, batch);
}

void GptImpl::recompute_ops(int64_t block, std::span<const ParamView> p, GptBatch& batch) {
  const LayerActivations& at = layer_at(block, batch);
  first_norm_forward(block, p, {}, batch);
  forward_norm(second_norm(block, p, batch), {}, batch.at(at.norm2), batch);
  activation_forward(block, batch);
}

Status GptImpl::keep(kernels::View place, kernels::View values, int64_t count) {
  if (!options.splits_backward) return {};
  return kernels::copy_bytes(stream,
                             {.to = place.data,
                              .from = values.data,
                              .bytes = static_cast<size_t>(count) * kernels::dtype_bytes(dtype)});
}

// Returns the gradient of the first MLP product's output. GELU's is computed in the
// scratch, together with the second product's backward if that supports the form; SwiGLU's
// overwrites the values in place.
Result<kernels::View> GptImpl::hidden_backward(int64_t block, const Weights& weights,
                                               GptBatch& batch, GradSink& sink) {
  const LayerActivations& at = layer_at(block, batch);
  const kernels::View hidden_in = batch.at(at.hidden_in);
  const kernels::View dhidden = scratch_tensor(scratch_layout.wide_gradient);
  // The branch's gradient is written after the last read of doutput.
  const kernels::View doutput =
      before_dropout(block, DropPlace::kMlp, scratch_layout.branch_gradient, batch);
  TRY(keep(layer_output(block, batch), doutput, batch.kept_rows() * options.config.width));
  TRY_ASSIGN(const kernels::View dy, gather_rows(doutput, Pass::kBackward, batch));
  backward_product(
      {.m = batch.rows(),
       .n = options.config.width,
       .k = local_hidden(),
       .x = batch.at(at.hidden),
       .weights = weights},
      {.dy = dy,
       .x_pre_activation = design().mlp == MlpKind::kGelu ? hidden_in : kernels::View(),
       .dx = dhidden},
      now(sink));
  if (!design().has_swiglu()) {
    if (design().mlp != MlpKind::kGelu) {
      ops.gelu_backward(stream, {.x = hidden_in,
                                 .dy = dhidden,
                                 .dx = dhidden,
                                 .count = batch.rows() * local_hidden(),
                                 .form = gelu_form()});
    }
    TRY(keep(hidden_in, dhidden, batch.rows() * local_hidden()));
    return dhidden;
  }
  ops.swiglu_backward(stream, {.gate_up = hidden_in,
                               .dy = dhidden,
                               .dgate_up = hidden_in,
                               .rows = batch.rows(),
                               .width = local_hidden()});
  return hidden_in;
}

Status GptImpl::mlp_backward(int64_t block, std::span<const ParamView> p, GptBatch& batch,
                             GradSink& sink) {
  const int64_t width = options.config.width;
  const Weights hidden = layer_weights(block, kHidden, p);
  const Weights output = layer_weights(block, kMlpOut, p);
  const kernels::View dnorm = scratch_tensor(scratch_layout.branch_gradient);

  TRY_ASSIGN(const kernels::View dhidden_in, hidden_backward(block, output, batch, sink));
  TRY(ready(output, sink));
  TRY(first_product_backward(
      {.m = batch.rows(), .n = local_hidden_in(), .k = width, .weights = hidden},
      batch.at(layer_at(block, batch).norm2), {.dy = dhidden_in, .dx = dnorm}, batch, sink));
  TRY(ready(hidden, sink));
  return backward_layer_norm(block, kNorm2, second_norm(block, p, batch), batch, sink);
}

// A bias of the keys shifts all scores of a query equally, and softmax ignores that, so its
// gradient is zero. The kernel leaves rounding errors there, which AdamW would amplify to full
// steps that differ from one world size to another.
void GptImpl::clear_key_bias(int64_t id, GradSink& sink) {
  ops.fill(stream, {.out = sink.buffer(id) + local_width(), .count = local_width(), .value = 0.0f});
}

Status GptImpl::attention_backward(int64_t block, std::span<const ParamView> p, GptBatch& batch,
                                   GradSink& sink) {
  const LayerActivations& at = layer_at(block, batch);
  const int64_t width = options.config.width;
  const int64_t split = local_width();
  const Weights qkv = layer_weights(block, kQkv, p);
  const Weights output = layer_weights(block, kAttentionOut, p);
  // Shares its memory with dnorm, which is written after the last read of dattention.
  const kernels::View dattention = scratch_tensor(scratch_layout.branch_gradient);
  const kernels::View dqkv = scratch_tensor(scratch_layout.wide_gradient);
  const kernels::View dnorm = scratch_tensor(scratch_layout.branch_gradient);

  // dqkv is written after the last read of doutput.
  const kernels::View doutput =
      before_dropout(block, DropPlace::kAttention, scratch_layout.wide_gradient, batch);
  TRY(keep(batch.at(at.post_attention_stream), doutput, batch.kept_rows() * width));
  TRY_ASSIGN(const kernels::View dy, gather_rows(doutput, Pass::kBackward, batch));
  backward_product(
      {.m = batch.rows(), .n = width, .k = split, .x = batch.at(at.attention), .weights = output},
      {.dy = dy, .dx = dattention}, now(sink));
  TRY(ready(output, sink));
  ops.attention_backward(stream, {.dout = dattention,
                                  .qkv = batch.at(at.qkv),
                                  .out = batch.at(at.attention),
                                  .lse = batch.f32(at.lse),
                                  .dqkv = dqkv,
                                  .shape = attention_shape(batch),
                                  .workspace = workspace,
                                  .by = attention_by(batch)});
  if (design().has_rotary()) apply_rotary(dqkv, true, batch);
  TRY(keep(batch.at(at.qkv), dqkv, batch.rows() * local_qkv()));
  TRY(first_product_backward({.m = batch.rows(), .n = local_qkv(), .k = width, .weights = qkv},
                             batch.at(at.norm1), {.dy = dqkv, .dx = dnorm}, batch, sink));
  if (qkv.bias != nullptr) clear_key_bias(qkv.bias_id, sink);
  TRY(ready(qkv, sink));
  return backward_layer_norm(block, kNorm1, first_norm(block, p, batch), batch, sink);
}

}  // namespace lockstep::model
