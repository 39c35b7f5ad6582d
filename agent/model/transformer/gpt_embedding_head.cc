#include <algorithm>

#include "agent/model/transformer/gpt_impl.h"

namespace lockstep::model {
namespace {

// Indices in block_parameters() of the embedding, as far as the family has them.
enum EmbeddingParameter : size_t { kTokens = 0, kPositions = 1, kTypes = 2 };

// Places in the head's block of a transform's parameters, after the final norm's.
enum TransformParameter : int64_t { kTransformProduct = 2, kTransformNorm = 4 };

}  // namespace

Status GptImpl::embedding_forward(std::span<const ParamView> p, GptBatch& batch) {
  CHECK(std::ssize(p) == design().embedding_parameters());
  const GptInput& input = batch.input();
  const RegionRows output = rows_of(batch.stage_input(), batch);
  const bool adds_positions = !design().has_rotary() && shard.index == 0;
  const bool adds_type = design().token_types > 0 && shard.index == 0;  // the first type's row
  ops.embedding_forward(
      stream, {.tokens = input.tokens,
               .token_table = p[kTokens].value,
               .position_table =
                   adds_positions ? kernels::ConstView(p[kPositions].value) : kernels::ConstView(),
               .row = adds_type ? kernels::ConstView(p[kTypes].value) : kernels::ConstView(),
               .out = output.whole,
               .batch = input.batch,
               .sequence = input.sequence,
               .width = options.config.width,
               .vocabulary = local_vocabulary(),
               .vocabulary_begin = local_vocabulary() * shard.index});
  TRY(region.sum_rows(output, Pass::kForward));
  if (!design().norms_the_stream) {
    drop_out(0, DropPlace::kEmbedding, output.part, output.part, batch);
  }
  return {};
}

Status GptImpl::embedding_backward(GptBatch& batch, GradSink& sink) {
  const GptInput& input = batch.input();
  const kernels::View gradient = scratch_tensor(scratch_layout.residual_gradient);
  if (!design().norms_the_stream) {
    drop_out(0, DropPlace::kEmbedding, gradient, gradient, batch);
  }
  TRY_ASSIGN(const kernels::View dout, gather_rows(gradient, Pass::kBackward, batch));
  ops.embedding_backward(
      stream,
      {.tokens = input.tokens,
       .dout = dout,
       .dtoken_table = sink.buffer(kTokenEmbedding),
       .dposition_table =
           design().has_rotary() ? kernels::View() : kernels::View(sink.buffer(kPositionEmbedding)),
       .batch = input.batch,
       .sequence = input.sequence,
       .width = options.config.width,
       .vocabulary = local_vocabulary(),
       .vocabulary_begin = local_vocabulary() * shard.index,
       .workspace = workspace});
  if (design().token_types > 0) {
    ops.matmul_backward(stream, {.dy = dout,
                                 .dbias = sink.buffer(kTypeEmbedding),
                                 .m = batch.rows(),
                                 .n = options.config.width,
                                 .workspace = workspace});
  }
  for (int64_t id = design().embedding_parameters() - 1; id > kTokenEmbedding; --id) {
    TRY(sink.ready(id));
  }
  return sink.ready(kTokenEmbedding);
}

GptImpl::Chunk GptImpl::head_chunk(int64_t begin, const GptBatch& batch) const {
  const int64_t rows = head_rows(options.config, shard, batch.rows(), activations);
  return {begin, std::min(rows, batch.rows() - begin)};
}

GptImpl::HeadMemory GptImpl::head_memory(const GptBatch& batch) const {
  if (batch.trains()) {
    const HeadChunk& at = scratch_layout.chunk;
    return {.logits = scratch_tensor(at.logits),
            .maxima = scratch_f32(at.maxima),
            .sums = scratch_f32(at.sums),
            .target_logits = scratch_f32(at.target_logits)};
  }
  const HeadChunk& at = batch.arena().chunk;
  return {.logits = batch.at(at.logits),
          .maxima = batch.f32(at.maxima),
          .sums = batch.f32(at.sums),
          .target_logits = batch.f32(at.target_logits)};
}

// The head's block reads the tied embedding (first), the final norm, a transform, and last its own
// weight, a bias, or both.
GptImpl::Weights GptImpl::head_weights(std::span<const ParamView> p) const {
  const bool tied = options.config.tied, has_bias = design().head_transform;
  const int64_t last = parameters.entries.back().id;
  const ParamView* own = &p.back() - (has_bias ? 1 : 0);
  return {.weight = tied ? &p.front() : own,
          .bias = has_bias ? &p.back() : nullptr,
          .id = tied ? kTokenEmbedding : last - (has_bias ? 1 : 0),
          .bias_id = last};
}

GptImpl::Weights GptImpl::head_part(std::span<const ParamView> p, int64_t offset) const {
  const int64_t first = options.config.tied ? 1 : 0;
  const int64_t after = std::ssize(p) - first - offset;  // this parameter and those after it
  return weights_at(
      {first + offset, parameters.entries.back().id + 1 - after, design().norm == NormKind::kLayer},
      p);
}

GptImpl::Norm GptImpl::head_norm(std::span<const ParamView> p, const GptBatch& batch) const {
  const ActivationArena& arena = batch.arena();
  return {.h = batch.at(arena.output),
          .weights = head_part(p, 0),
          .mean = batch.f32(arena.mean),
          .rstd = batch.f32(arena.rstd)};
}

GptImpl::Product GptImpl::transform_product(std::span<const ParamView> p,
                                            const GptBatch& batch) const {
  return {.m = batch.kept_rows(),
          .n = options.config.width,
          .k = options.config.width,
          .x = batch.at(batch.arena().norm),
          .weights = head_part(p, kTransformProduct)};
}

GptImpl::Norm GptImpl::transform_norm(std::span<const ParamView> p, const GptBatch& batch) const {
  const ActivationArena& arena = batch.arena();
  return {.h = batch.at(arena.transform),
          .weights = head_part(p, kTransformNorm),
          .mean = batch.f32(arena.transform_mean),
          .rstd = batch.f32(arena.transform_rstd)};
}

// Each shard computes all columns of the rows that it keeps.
void GptImpl::transform_forward(std::span<const ParamView> p, GptBatch& batch) {
  const ActivationArena& arena = batch.arena();
  const kernels::View input =
      batch.at(arena.transform_in >= 0 ? arena.transform_in : arena.transform);
  forward_product(transform_product(p, batch), {.y = input});
  ops.gelu_forward(stream, {.x = input,
                            .y = batch.at(arena.transform),
                            .count = batch.kept_rows() * options.config.width,
                            .form = kernels::GeluForm::kErf});
  forward_norm(transform_norm(p, batch), {}, batch.at(arena.transform_norm), batch);
}

Status GptImpl::transform_backward(std::span<const ParamView> p, GptBatch& batch, GradSink& sink) {
  TRY(backward_norm(transform_norm(p, batch), false, batch, sink));
  const kernels::View gradient = scratch_tensor(scratch_layout.residual_gradient);
  ops.gelu_backward(stream, {.x = batch.at(batch.arena().transform_in),
                             .dy = gradient,
                             .dx = gradient,
                             .count = batch.kept_rows() * options.config.width,
                             .form = kernels::GeluForm::kErf});
  const Product product = transform_product(p, batch);
  const kernels::View dx = rows_within(scratch_tensor(scratch_layout.branch_gradient), batch).part;
  backward_product(product, {.dy = gradient, .dx = dx}, &sink);
  return ready(product.weights, sink);
}

kernels::View GptImpl::head_input(const GptBatch& batch) const {
  const ActivationArena& arena = batch.arena();
  return batch.at(design().head_transform ? arena.transform_norm : arena.norm);
}

Status GptImpl::gather_head_input(const GptBatch& batch) {
  return region.gather_rows(rows_of(head_input(batch), batch), Pass::kForward);
}

GptImpl::Product GptImpl::head_product(std::span<const ParamView> p, const Chunk& chunk,
                                       const GptBatch& batch) const {
  const int64_t width = options.config.width;
  return {.m = chunk.rows,
          .n = local_vocabulary(),
          .k = width,
          .x = from_row(rows_of(head_input(batch), batch).whole, chunk.begin, width),
          .weights = head_weights(p)};
}

Status GptImpl::head_forward(std::span<const ParamView> p, GptBatch& batch) {
  CHECK(std::ssize(p) == design().head_extras() + 1);
  forward_norm(head_norm(p, batch), stream_after_layer(head_block(options.config) - 1, batch),
               batch.at(batch.arena().norm), batch);
  if (design().head_transform) transform_forward(p, batch);
  if (batch.trains()) return {};  // head_backward() does the rest
  TRY(gather_head_input(batch));
  const GptInput& input = batch.input();
  if (input.targets == nullptr) {
    forward_product(head_product(p, {input.logits_begin, input.logits_rows}, batch),
                    {.y = batch.logits()});
    return {};
  }
  Chunk chunk;
  for (int64_t row = 0; row < batch.rows(); row += chunk.rows) {
    chunk = head_chunk(row, batch);
    TRY(head_losses(p, chunk, batch));
  }
  return {};
}

Status GptImpl::head_losses(std::span<const ParamView> p, const Chunk& chunk, GptBatch& batch) {
  forward_product(head_product(p, chunk, batch), {.y = head_memory(batch).logits});
  if (shard.size > 1) return classify_sharded(chunk, batch);
  classify(chunk, batch);
  return {};
}

kernels::ClassifierShape GptImpl::classifier_shape(const Chunk& chunk) const {
  return {.rows = chunk.rows,
          .columns = local_vocabulary(),
          .vocabulary = options.config.vocabulary,
          .column_begin = local_vocabulary() * shard.index};
}

void GptImpl::classify(const Chunk& chunk, GptBatch& batch) {
  ops.classifier(stream, {.logits = head_memory(batch).logits,
                          .targets = batch.input().targets + chunk.begin,
                          .losses = batch.token_losses() + chunk.begin,
                          .shape = classifier_shape(chunk),
                          .gradient = batch.trains(),
                          .gradient_scale = batch.input().gradient_scale});
}

Status GptImpl::classify_sharded(const Chunk& chunk, GptBatch& batch) {
  const kernels::ClassifierShape shape = classifier_shape(chunk);
  const int32_t* targets = batch.input().targets + chunk.begin;
  const auto [logits, maxima, sums, target_logits] = head_memory(batch);
  ops.classifier_max(stream, {.logits = logits, .maxima = maxima, .shape = shape});
  TRY(region.max(maxima, chunk.rows));
  ops.classifier_sum(stream, {.logits = logits,
                              .targets = targets,
                              .maxima = maxima,
                              .sums = sums,
                              .target_logits = target_logits,
                              .shape = shape});
  TRY(region.sum(sums, chunk.rows));
  TRY(region.sum(target_logits, chunk.rows));
  ops.classifier_finish(stream, {.logits = logits,
                                 .targets = targets,
                                 .sums = sums,
                                 .target_logits = target_logits,
                                 .losses = batch.token_losses() + chunk.begin,
                                 .shape = shape,
                                 .gradient = batch.trains(),
                                 .gradient_scale = batch.input().gradient_scale});
  return {};
}

Status GptImpl::head_backward(std::span<const ParamView> p, GptBatch& batch, GradSink& sink) {
  CHECK(batch.input().targets != nullptr);
  const int64_t width = options.config.width;
  const kernels::View dnorm = scratch_tensor(scratch_layout.branch_gradient);
  PassObserver* observer = batch.input().observer;
  TRY(gather_head_input(batch));
  Chunk chunk;
  for (int64_t row = 0; row < batch.rows(); row += chunk.rows) {
    chunk = head_chunk(row, batch);
    TRY(head_losses(p, chunk, batch));
    if (observer != nullptr) observer->head_forward_issued();
    const Product product = head_product(p, chunk, batch);
    const ProductGradient gradient{.dy = head_memory(batch).logits,
                                   .dx = from_row(dnorm, row, width)};
    if (row + chunk.rows < batch.rows()) {
      backward_product(product, gradient, &sink);
    } else {
      TRY(summed_backward(product, gradient, {rows_within(dnorm, batch)}, &sink));
    }
    if (observer != nullptr) observer->head_backward_issued();
  }
  const Weights weights = head_weights(p);
  if (weights.bias != nullptr) TRY(sink.ready(weights.bias_id));
  if (!options.config.tied) TRY(sink.ready(weights.id));
  if (design().head_transform) TRY(transform_backward(p, batch, sink));
  return backward_norm(head_norm(p, batch), false, batch, sink);
}

}  // namespace lockstep::model
