#include "agent/model/gpt_impl.h"

namespace lockstep {
namespace {

// Places in block_parameters() of a layer; a product's or norm's bias follows its weight.
enum LayerParameter : size_t {
  kNorm1 = 0,
  kQkv = 2,
  kAttentionOut = 4,
  kNorm2 = 6,
  kHidden = 8,
  kMlpOut = 10,
  kLayerParameters = 12,
};

int64_t parameter_id(int64_t block, LayerParameter which) {
  return kPositionEmbedding + 1 + (block - 1) * static_cast<int64_t>(kLayerParameters) +
         static_cast<int64_t>(which);
}

}  // namespace

const LayerActivations& Gpt::Impl::layer_at(int64_t block, const MicroBatch& batch) const {
  return batch.arena().layers[static_cast<size_t>(block - first_layer_block())];
}

View Gpt::Impl::layer_output(int64_t block, const MicroBatch& batch) const {
  const auto next = static_cast<size_t>(block + 1 - first_layer_block());
  const ActivationArena& arena = batch.arena();
  return batch.at(next < arena.layers.size() ? arena.layers[next].input : arena.output);
}

ConstView Gpt::Impl::layer_residual(int64_t block, const MicroBatch& batch) const {
  if (block == first_layer_block()) return {};
  return batch.at(layer_at(block - 1, batch).middle);
}

Gpt::Impl::Norm Gpt::Impl::first_norm(int64_t block, std::span<const ParamView> p,
                                      const MicroBatch& batch) const {
  const LayerActivations& at = layer_at(block, batch);
  return {.h = batch.at(at.input),
          .weight = &p[kNorm1],
          .bias = &p[kNorm1 + 1],
          .mean = batch.f32(at.mean1),
          .rstd = batch.f32(at.rstd1)};
}

Gpt::Impl::Norm Gpt::Impl::second_norm(int64_t block, std::span<const ParamView> p,
                                       const MicroBatch& batch) const {
  const LayerActivations& at = layer_at(block, batch);
  return {.h = batch.at(at.middle),
          .weight = &p[kNorm2],
          .bias = &p[kNorm2 + 1],
          .mean = batch.f32(at.mean2),
          .rstd = batch.f32(at.rstd2)};
}

// h1 = input + residual; h2 = h1 + attention(norm1(h1)); output = mlp(norm2(h2)), which the next
// norm adds to h2.
Status Gpt::Impl::layer_forward(int64_t block, std::span<const ParamView> p, MicroBatch& batch) {
  CHECK(p.size() == kLayerParameters);
  TRY(attention_forward(block, p, layer_residual(block, batch), batch));
  hidden_forward(block, p, batch);
  return mlp_output_forward(block, p, batch);
}

// Leaves attention's output in the layer's `middle`.
Status Gpt::Impl::attention_forward(int64_t block, std::span<const ParamView> p, ConstView residual,
                                    MicroBatch& batch) {
  const LayerActivations& at = layer_at(block, batch);
  const int64_t width = options.config.width;
  const int64_t split = local_width();
  forward_norm(first_norm(block, p, batch), residual, batch.at(at.norm1), batch);
  forward_product({.m = batch.rows(),
                   .n = 3 * split,
                   .k = width,
                   .x = batch.at(at.norm1),
                   .weight = &p[kQkv],
                   .bias = &p[kQkv + 1]},
                  {.y = batch.at(at.qkv)});
  ops.attention_forward(stream, {.qkv = batch.at(at.qkv),
                                 .out = batch.at(at.attention),
                                 .lse = batch.f32(at.lse),
                                 .shape = attention_shape(batch),
                                 .workspace = workspace});
  forward_product({.m = batch.rows(),
                   .n = width,
                   .k = split,
                   .x = batch.at(at.attention),
                   .weight = &p[kAttentionOut],
                   .bias = bias_once(p[kAttentionOut + 1])},
                  {.y = batch.at(at.middle)});
  return region.leave(batch.at(at.middle), batch.rows() * width);
}

// Adds the stream to `middle` first.
void Gpt::Impl::hidden_forward(int64_t block, std::span<const ParamView> p, MicroBatch& batch) {
  const LayerActivations& at = layer_at(block, batch);
  forward_norm(second_norm(block, p, batch), batch.at(at.input), batch.at(at.norm2), batch);
  forward_product({.m = batch.rows(),
                   .n = 4 * local_width(),
                   .k = options.config.width,
                   .x = batch.at(at.norm2),
                   .weight = &p[kHidden],
                   .bias = &p[kHidden + 1]},
                  {.y = batch.at(at.hidden),
                   .pre_activation = batch.at(at.hidden_in),
                   .activation = Activation::kGelu});
}

Status Gpt::Impl::mlp_output_forward(int64_t block, std::span<const ParamView> p,
                                     MicroBatch& batch) {
  const LayerActivations& at = layer_at(block, batch);
  const int64_t stream_count = batch.rows() * options.config.width;
  const View output = layer_output(block, batch);
  forward_product({.m = batch.rows(),
                   .n = options.config.width,
                   .k = 4 * local_width(),
                   .x = batch.at(at.hidden),
                   .weight = &p[kMlpOut],
                   .bias = bias_once(p[kMlpOut + 1])},
                  {.y = output});
  TRY(region.leave(output, stream_count));
  if (block + 1 == options.stage.end) {  // no norm follows here that would add it
    ops.add(stream, {.a = output, .b = batch.at(at.middle), .out = output, .count = stream_count});
  }
  return {};
}

Status Gpt::Impl::layer_backward(int64_t block, std::span<const ParamView> p, MicroBatch& batch,
                                 GradSink& sink) {
  CHECK(p.size() == kLayerParameters);
  TRY(recompute(block, p, batch));
  TRY(mlp_backward(block, p, batch, sink));
  return attention_backward(block, p, batch, sink);
}

Status Gpt::Impl::recompute(int64_t block, std::span<const ParamView> p, MicroBatch& batch) {
  if (options.recompute == Recompute::kOps) recompute_ops(block, p, batch);
  if (options.recompute != Recompute::kBlocks) return {};
  TRY(attention_forward(block, p, {}, batch));  // the input has the stream since forward
  hidden_forward(block, p, batch);
  return {};
}

void Gpt::Impl::recompute_ops(int64_t block, std::span<const ParamView> p, MicroBatch& batch) {
  const LayerActivations& at = layer_at(block, batch);
  forward_norm(first_norm(block, p, batch), {}, batch.at(at.norm1), batch);
  forward_norm(second_norm(block, p, batch), {}, batch.at(at.norm2), batch);
  ops.gelu_forward(stream, {.x = batch.at(at.hidden_in),
                            .y = batch.at(at.hidden),
                            .count = batch.rows() * 4 * local_width()});
}

Status Gpt::Impl::mlp_backward(int64_t block, std::span<const ParamView> p, MicroBatch& batch,
                               GradSink& sink) {
  const LayerActivations& at = layer_at(block, batch);
  const int64_t width = options.config.width;
  const int64_t split = local_width();
  const View dhidden = scratch_tensor(scratch_at.wide);
  const View dnorm = scratch_tensor(scratch_at.branch);

  backward_product({.m = batch.rows(),
                    .n = width,
                    .k = 4 * split,
                    .x = batch.at(at.hidden),
                    .weight = &p[kMlpOut],
                    .bias = &p[kMlpOut + 1]},
                   {.dy = scratch_tensor(scratch_at.stream),
                    .x_pre_activation = batch.at(at.hidden_in),
                    .dx = dhidden,
                    .weight_id = parameter_id(block, kMlpOut)},
                   sink);
  TRY(ready_pair(parameter_id(block, kMlpOut), sink));
  backward_product({.m = batch.rows(),
                    .n = 4 * split,
                    .k = width,
                    .x = batch.at(at.norm2),
                    .weight = &p[kHidden],
                    .bias = &p[kHidden + 1]},
                   {.dy = dhidden, .dx = dnorm, .weight_id = parameter_id(block, kHidden)}, sink);
  TRY(ready_pair(parameter_id(block, kHidden), sink));
  TRY(region.enter(dnorm, batch.rows() * width));
  return backward_norm(second_norm(block, p, batch), true, parameter_id(block, kNorm2), batch,
                       sink);
}

Status Gpt::Impl::attention_backward(int64_t block, std::span<const ParamView> p, MicroBatch& batch,
                                     GradSink& sink) {
  const LayerActivations& at = layer_at(block, batch);
  const int64_t width = options.config.width;
  const int64_t split = local_width();
  const View dattention = scratch_tensor(scratch_at.branch);  // done with before dnorm is written
  const View dqkv = scratch_tensor(scratch_at.wide);
  const View dnorm = scratch_tensor(scratch_at.branch);

  backward_product({.m = batch.rows(),
                    .n = width,
                    .k = split,
                    .x = batch.at(at.attention),
                    .weight = &p[kAttentionOut],
                    .bias = &p[kAttentionOut + 1]},
                   {.dy = scratch_tensor(scratch_at.stream),
                    .dx = dattention,
                    .weight_id = parameter_id(block, kAttentionOut)},
                   sink);
  TRY(ready_pair(parameter_id(block, kAttentionOut), sink));
  ops.attention_backward(stream, {.dout = dattention,
                                  .qkv = batch.at(at.qkv),
                                  .out = batch.at(at.attention),
                                  .lse = batch.f32(at.lse),
                                  .dqkv = dqkv,
                                  .shape = attention_shape(batch),
                                  .workspace = workspace});
  backward_product({.m = batch.rows(),
                    .n = 3 * split,
                    .k = width,
                    .x = batch.at(at.norm1),
                    .weight = &p[kQkv],
                    .bias = &p[kQkv + 1]},
                   {.dy = dqkv, .dx = dnorm, .weight_id = parameter_id(block, kQkv)}, sink);
  // A bias of the keys shifts all of a query's scores alike, which softmax does not see: its
  // gradient is zero. What the kernel has there is rounding, which AdamW would blow up to full
  // steps that differ from one world size to another.
  float* dkey_bias = sink.buffer(parameter_id(block, kQkv) + 1) + split;
  ops.fill(stream, {.out = dkey_bias, .count = split, .value = 0.0f});
  TRY(ready_pair(parameter_id(block, kQkv), sink));
  TRY(region.enter(dnorm, batch.rows() * width));
  return backward_norm(first_norm(block, p, batch), true, parameter_id(block, kNorm1), batch, sink);
}

}  // namespace lockstep
