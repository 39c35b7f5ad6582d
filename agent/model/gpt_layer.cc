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

float* Gpt::Impl::layer_output(int64_t block, const MicroBatch& batch) const {
  const auto next = static_cast<size_t>(block + 1 - first_layer_block());
  const ActivationArena& arena = batch.arena();
  return batch.at(next < arena.layers.size() ? arena.layers[next].input : arena.output);
}

const float* Gpt::Impl::layer_residual(int64_t block, const MicroBatch& batch) const {
  return block == first_layer_block() ? nullptr : batch.at(layer_at(block - 1, batch).middle);
}

// h1 = input + residual; h2 = h1 + attention(norm1(h1)); output = mlp(norm2(h2)), which the next
// norm adds to h2.
Status Gpt::Impl::layer_forward(int64_t block, std::span<const ParamView> p, MicroBatch& batch) {
  CHECK(p.size() == kLayerParameters);
  TRY(attention_forward(block, p, batch));
  return mlp_forward(block, p, batch);
}

// Leaves attention's output in the layer's `middle`.
Status Gpt::Impl::attention_forward(int64_t block, std::span<const ParamView> p,
                                    MicroBatch& batch) {
  const LayerActivations& at = layer_at(block, batch);
  const int64_t width = options.config.width;
  const int64_t split = local_width();
  float* norm1 = batch.at(at.norm1);
  forward_norm({.h = batch.at(at.input),
                .weight = &p[kNorm1],
                .bias = &p[kNorm1 + 1],
                .mean = batch.at(at.mean1),
                .rstd = batch.at(at.rstd1)},
               layer_residual(block, batch), norm1, batch);
  float* qkv = batch.at(at.qkv);
  forward_product(
      {.n = 3 * split, .k = width, .x = norm1, .weight = &p[kQkv], .bias = &p[kQkv + 1]},
      {.y = qkv}, batch);
  float* attention = batch.at(at.attention);
  ops.attention_forward(stream, {.qkv = qkv,
                                 .out = attention,
                                 .lse = batch.at(at.lse),
                                 .shape = attention_shape(batch),
                                 .workspace = workspace_.workspace()});
  float* middle = batch.at(at.middle);
  forward_product({.n = width,
                   .k = split,
                   .x = attention,
                   .weight = &p[kAttentionOut],
                   .bias = bias_once(p[kAttentionOut + 1])},
                  {.y = middle}, batch);
  return region.leave(middle, batch.rows() * width);
}

// Adds the stream to `middle` and leaves the MLP's output in the next layer's input.
Status Gpt::Impl::mlp_forward(int64_t block, std::span<const ParamView> p, MicroBatch& batch) {
  const LayerActivations& at = layer_at(block, batch);
  const int64_t width = options.config.width;
  const int64_t split = local_width();
  const int64_t stream_count = batch.rows() * width;
  float* middle = batch.at(at.middle);
  float* norm2 = batch.at(at.norm2);
  forward_norm({.h = middle,
                .weight = &p[kNorm2],
                .bias = &p[kNorm2 + 1],
                .mean = batch.at(at.mean2),
                .rstd = batch.at(at.rstd2)},
               batch.at(at.input), norm2, batch);
  float* hidden = batch.at(at.hidden);
  forward_product(
      {.n = 4 * split, .k = width, .x = norm2, .weight = &p[kHidden], .bias = &p[kHidden + 1]},
      {.y = hidden, .pre_activation = batch.at(at.hidden_in), .activation = Activation::kGelu},
      batch);
  float* output = layer_output(block, batch);
  forward_product({.n = width,
                   .k = 4 * split,
                   .x = hidden,
                   .weight = &p[kMlpOut],
                   .bias = bias_once(p[kMlpOut + 1])},
                  {.y = output}, batch);
  TRY(region.leave(output, stream_count));
  if (block + 1 == options.stage.end) {  // no norm follows here that would add it
    ops.add(stream, {.a = output, .b = middle, .out = output, .count = stream_count});
  }
  return {};
}

Status Gpt::Impl::layer_backward(int64_t block, std::span<const ParamView> p, MicroBatch& batch,
                                 GradSink& sink) {
  CHECK(p.size() == kLayerParameters);
  TRY(mlp_backward(block, p, batch, sink));
  return attention_backward(block, p, batch, sink);
}

Status Gpt::Impl::mlp_backward(int64_t block, std::span<const ParamView> p, MicroBatch& batch,
                               GradSink& sink) {
  const LayerActivations& at = layer_at(block, batch);
  const int64_t width = options.config.width;
  const int64_t split = local_width();
  float* dhidden = scratch_tensor(scratch_at.wide);
  float* dnorm = scratch_tensor(scratch_at.branch);

  backward_product({.n = width,
                    .k = 4 * split,
                    .x = batch.at(at.hidden),
                    .weight = &p[kMlpOut],
                    .bias = &p[kMlpOut + 1]},
                   {.dy = scratch_tensor(scratch_at.stream),
                    .x_pre_activation = batch.at(at.hidden_in),
                    .dx = dhidden,
                    .weight_id = parameter_id(block, kMlpOut)},
                   batch, sink);
  TRY(ready_pair(parameter_id(block, kMlpOut), sink));
  backward_product({.n = 4 * split,
                    .k = width,
                    .x = batch.at(at.norm2),
                    .weight = &p[kHidden],
                    .bias = &p[kHidden + 1]},
                   {.dy = dhidden, .dx = dnorm, .weight_id = parameter_id(block, kHidden)}, batch,
                   sink);
  TRY(ready_pair(parameter_id(block, kHidden), sink));
  TRY(region.enter(dnorm, batch.rows() * width));
  return backward_norm({.h = batch.at(at.middle),
                        .weight = &p[kNorm2],
                        .bias = &p[kNorm2 + 1],
                        .mean = batch.at(at.mean2),
                        .rstd = batch.at(at.rstd2)},
                       true, parameter_id(block, kNorm2), batch, sink);
}

Status Gpt::Impl::attention_backward(int64_t block, std::span<const ParamView> p, MicroBatch& batch,
                                     GradSink& sink) {
  const LayerActivations& at = layer_at(block, batch);
  const int64_t width = options.config.width;
  const int64_t split = local_width();
  float* dattention = scratch_tensor(scratch_at.branch);  // done with before dnorm is written
  float* dqkv = scratch_tensor(scratch_at.wide);
  float* dnorm = scratch_tensor(scratch_at.branch);

  backward_product({.n = width,
                    .k = split,
                    .x = batch.at(at.attention),
                    .weight = &p[kAttentionOut],
                    .bias = &p[kAttentionOut + 1]},
                   {.dy = scratch_tensor(scratch_at.stream),
                    .dx = dattention,
                    .weight_id = parameter_id(block, kAttentionOut)},
                   batch, sink);
  TRY(ready_pair(parameter_id(block, kAttentionOut), sink));
  ops.attention_backward(stream, {.dout = dattention,
                                  .qkv = batch.at(at.qkv),
                                  .out = batch.at(at.attention),
                                  .lse = batch.at(at.lse),
                                  .dqkv = dqkv,
                                  .shape = attention_shape(batch),
                                  .workspace = workspace_.workspace()});
  backward_product({.n = 3 * split,
                    .k = width,
                    .x = batch.at(at.norm1),
                    .weight = &p[kQkv],
                    .bias = &p[kQkv + 1]},
                   {.dy = dqkv, .dx = dnorm, .weight_id = parameter_id(block, kQkv)}, batch, sink);
  // A bias of the keys shifts all of a query's scores alike, which softmax does not see: its
  // gradient is zero. What the kernel has there is rounding, which AdamW would blow up to full
  // steps that differ from one world size to another.
  float* dkey_bias = sink.buffer(parameter_id(block, kQkv) + 1) + split;
  ops.fill(stream, {.out = dkey_bias, .count = split, .value = 0.0f});
  TRY(ready_pair(parameter_id(block, kQkv), sink));
  TRY(region.enter(dnorm, batch.rows() * width));
  return backward_norm({.h = batch.at(at.input),
                        .weight = &p[kNorm1],
                        .bias = &p[kNorm1 + 1],
                        .mean = batch.at(at.mean1),
                        .rstd = batch.at(at.rstd1)},
                       true, parameter_id(block, kNorm1), batch, sink);
}

}  // namespace lockstep
