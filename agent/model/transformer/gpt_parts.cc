#include "agent/model/transformer/gpt_impl.h"

namespace lockstep::model {

kernels::View from_row(const kernels::View& view, int64_t begin, int64_t columns) {
  const auto offset = static_cast<size_t>(begin * columns) * kernels::dtype_bytes(view.dtype);
  return {static_cast<std::byte*>(view.data) + offset, view.dtype};
}

kernels::ConstView from_row(const kernels::ConstView& view, int64_t begin, int64_t columns) {
  const auto offset = static_cast<size_t>(begin * columns) * kernels::dtype_bytes(view.dtype);
  return {static_cast<const std::byte*>(view.data) + offset, view.dtype};
}

RegionRows GptImpl::rows_of(kernels::View part, const GptBatch& batch) const {
  return {.whole = rows_kept.size == 1 ? part : kernels::View{gathered.data, dtype},
          .part = part,
          .count = batch.rows() * options.config.width,
          .parts = rows_kept.size};
}

RegionRows GptImpl::rows_within(kernels::View whole, const GptBatch& batch) const {
  RegionRows rows = rows_of(whole, batch);
  rows.whole = whole;
  rows.part = from_row(whole, rows_kept.index * batch.kept_rows(), options.config.width);
  return rows;
}

Result<kernels::View> GptImpl::gather_rows(kernels::View part, Pass pass, const GptBatch& batch) {
  const RegionRows rows = rows_of(part, batch);
  TRY(region.gather_rows(rows, pass));
  return rows.whole;
}

GptImpl::Weights GptImpl::weights_at(const Address& address, std::span<const ParamView> views) {
  const ParamView* weight = &views[static_cast<size_t>(address.place)];
  return {.weight = weight,
          .bias = address.has_bias ? weight + 1 : nullptr,
          .id = address.id,
          .bias_id = address.id + 1};
}

bool GptImpl::has_bias(LayerPart part) const {
  const bool is_norm = part == kNorm1 || part == kNorm2;
  return is_norm ? design().norm == NormKind::kLayer : design().biases;
}

int64_t GptImpl::place_of(int64_t part) const {
  int64_t place = 0;
  for (int64_t each = 0; each < part; ++each) {
    place += has_bias(static_cast<LayerPart>(each)) ? 2 : 1;
  }
  return place;
}

GptImpl::Address GptImpl::address_of(int64_t block, LayerPart part) const {
  const int64_t before = design().embedding_parameters();
  const int64_t place = place_of(part);
  const int64_t id = before + (block - 1) * place_of(kLayerParts) + place;
  return {place, id, has_bias(part)};
}

GptImpl::Weights GptImpl::layer_weights(int64_t block, LayerPart part,
                                        std::span<const ParamView> views) const {
  CHECK(std::ssize(views) == place_of(kLayerParts));  // the table of parameters has these biases
  return weights_at(address_of(block, part), views);
}

Status GptImpl::ready(const Weights& weights, GradSink& sink) {
  if (weights.bias != nullptr) TRY(sink.ready(weights.bias_id));
  return sink.ready(weights.id);
}

void GptImpl::forward_product(const Product& product, const ProductOutput& output) {
  ops.matmul_forward(stream, {.x = product.x,
                              .weight = product.weights.weight->product,
                              .bias = bias_of(product.weights),
                              .y = output.y,
                              .pre_activation = output.pre_activation,
                              .m = product.m,
                              .n = product.n,
                              .k = product.k,
                              .activation = output.activation,
                              .precision = options.precision,
                              .workspace = workspace});
}

void GptImpl::backward_product(const Product& product, const ProductGradient& gradient,
                               GradSink* sink) {
  const Weights& weights = product.weights;
  const bool has_bias = weights.bias != nullptr;
  ops.matmul_backward(
      stream, {.dy = gradient.dy,
               .x = product.x,
               .weight = weights.weight->product,
               .x_pre_activation = gradient.x_pre_activation,
               .dx = gradient.dx,
               .dweight = sink == nullptr ? nullptr : sink->buffer(weights.id),
               .dbias = sink == nullptr || !has_bias ? nullptr : sink->buffer(weights.bias_id),
               .m = product.m,
               .n = product.n,
               .k = product.k,
               .precision = options.precision,
               .workspace = workspace});
}

void GptImpl::forward_norm(const Norm& norm, kernels::ConstView residual, kernels::View y,
                           const GptBatch& batch) {
  const kernels::View residual_out = residual ? norm.h : kernels::View();
  if (design().norm == NormKind::kRms) {
    ops.rmsnorm_forward(stream, {.x = norm.h,
                                 .residual = residual,
                                 .residual_out = residual_out,
                                 .weight = norm.weights.weight->value,
                                 .y = y,
                                 .rrms = norm.rstd,
                                 .rows = batch.kept_rows(),
                                 .width = options.config.width,
                                 .epsilon = static_cast<float>(options.config.norm_epsilon)});
    return;
  }
  ops.layernorm_forward(stream, {.x = norm.h,
                                 .residual = residual,
                                 .residual_out = residual_out,
                                 .weight = norm.weights.weight->value,
                                 .bias = norm.weights.bias->value,
                                 .y = y,
                                 .mean = norm.mean,
                                 .rstd = norm.rstd,
                                 .rows = batch.kept_rows(),
                                 .width = options.config.width,
                                 .epsilon = static_cast<float>(options.config.norm_epsilon)});
}

Status GptImpl::backward_norm(const Norm& norm, bool continues, const GptBatch& batch,
                              GradSink& sink) {
  const Weights& weights = norm.weights;
  const kernels::View gradient = scratch_tensor(scratch_layout.residual_gradient);
  const kernels::View dy = rows_within(scratch_tensor(scratch_layout.branch_gradient), batch).part;
  const kernels::View dresidual = continues ? gradient : kernels::View();
  if (design().norm == NormKind::kRms) {
    ops.rmsnorm_backward(stream, {.dy = dy,
                                  .h = norm.h,
                                  .weight = weights.weight->value,
                                  .rrms = norm.rstd,
                                  .dresidual = dresidual,
                                  .dx = gradient,
                                  .dweight = sink.buffer(weights.id),
                                  .rows = batch.kept_rows(),
                                  .width = options.config.width,
                                  .workspace = workspace});
    return ready(weights, sink);
  }
  ops.layernorm_backward(stream, {.dy = dy,
                                  .h = norm.h,
                                  .weight = weights.weight->value,
                                  .mean = norm.mean,
                                  .rstd = norm.rstd,
                                  .dresidual = dresidual,
                                  .dx = gradient,
                                  .dweight = sink.buffer(weights.id),
                                  .dbias = sink.buffer(weights.bias_id),
                                  .rows = batch.kept_rows(),
                                  .width = options.config.width,
                                  .workspace = workspace});
  return ready(weights, sink);
}

Status GptImpl::backward_layer_norm(int64_t block, LayerPart part, const Norm& norm,
                                    const GptBatch& batch, GradSink& sink) {
  if (!design().norms_the_stream) return backward_norm(norm, true, batch, sink);
  const kernels::View dy = rows_within(scratch_tensor(scratch_layout.branch_gradient), batch).part;
  ops.add(stream, {.a = dy,
                   .b = scratch_tensor(scratch_layout.residual_gradient),
                   .out = dy,
                   .count = batch.kept_rows() * options.config.width});
  if (part == kNorm1 && drops_embedding_after(block)) {
    drop_out(0, DropPlace::kEmbedding, dy, dy, batch);
  }
  return backward_norm(norm, false, batch, sink);
}

void GptImpl::drop_out(int64_t block, DropPlace place, kernels::ConstView from, kernels::View to,
                       const GptBatch& batch) {
  constexpr int64_t kPlaces = 3;
  if (!drops() || !batch.trains()) return;
  const int64_t rows_before =
      batch.input().first_sample * batch.input().sequence + rows_kept.index * batch.kept_rows();
  ops.dropout(stream, {.x = from,
                       .out = to,
                       .count = batch.kept_rows() * options.config.width,
                       .first = rows_before * options.config.width,
                       .probability = options.dropout.probability,
                       .key = kernels::dropout_key(options.dropout.seed,
                                                   block * kPlaces + static_cast<int64_t>(place))});
}

kernels::View GptImpl::before_dropout(int64_t block, DropPlace place, int64_t scratch_place,
                                      const GptBatch& batch) {
  const kernels::View gradient = scratch_tensor(scratch_layout.residual_gradient);
  if (!drops()) return gradient;
  const kernels::View before = scratch_tensor(scratch_place);
  drop_out(block, place, gradient, before, batch);
  return before;
}

void GptImpl::apply_rotary(kernels::View qkv, bool inverse, const GptBatch& batch) {
  ops.rotary(stream, {.qkv = qkv,
                      .table = static_cast<const float*>(angles.data),
                      .shape = attention_shape(batch),
                      .inverse = inverse});
}

Status GptImpl::reserve_angles(int64_t positions) {
  if (!design().has_rotary() || positions <= angle_positions_) return {};
  const ModelConfig& config = options.config;
  const RotaryScaling& scaling = config.rotary_scaling;
  std::vector<float> table(static_cast<size_t>(positions * config.head_dim()));
  kernels::rotary_table({.head_dim = config.head_dim(),
                         .base = config.rotary_base,
                         .factor = scaling.factor,
                         .low_turns = scaling.low_turns,
                         .high_turns = scaling.high_turns,
                         .original_context = scaling.original_context},
                        positions, table.data());
  const size_t bytes = angle_bytes(config, positions);
  TRY(grow({angles, owned_angles_, "the rotary embedding's angles"}, bytes));
  TRY(kernels::copy_bytes(stream, {.to = angles.data, .from = table.data(), .bytes = bytes}));
  TRY(stream.synchronize());  // the copy must finish before the table is freed
  angle_positions_ = positions;
  return {};
}

}  // namespace lockstep::model
