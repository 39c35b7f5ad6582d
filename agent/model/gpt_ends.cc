#include "agent/model/gpt_impl.h"

namespace lockstep {
namespace {

// Places in block_parameters() of the ends.
enum EmbeddingParameter : size_t { kTokens = 0, kPositions = 1 };
enum HeadParameter : size_t { kTied = 0, kFinalNorm = 1 };

}  // namespace

Status Gpt::Impl::embedding_forward(std::span<const ParamView> p, MicroBatch& batch) {
  CHECK(p.size() == 2);
  const MicroBatchInput& input = batch.input();
  float* out = batch.stage_input();
  ops.embedding_forward(
      stream, {.tokens = input.tokens,
               .token_table = p[kTokens].value,
               .position_table = shard.index == 0 ? ConstView(p[kPositions].value) : ConstView(),
               .out = out,
               .batch = input.batch,
               .sequence = input.sequence,
               .width = options.config.width,
               .vocabulary = local_vocabulary(),
               .vocabulary_begin = local_vocabulary() * shard.index});
  return region.leave(out, batch.rows() * options.config.width);
}

Status Gpt::Impl::embedding_backward(MicroBatch& batch, GradSink& sink) {
  const MicroBatchInput& input = batch.input();
  ops.embedding_backward(stream, {.tokens = input.tokens,
                                  .dout = scratch_tensor(scratch_at.stream),
                                  .dtoken_table = sink.buffer(kTokenEmbedding),
                                  .dposition_table = sink.buffer(kPositionEmbedding),
                                  .batch = input.batch,
                                  .sequence = input.sequence,
                                  .width = options.config.width,
                                  .vocabulary = local_vocabulary(),
                                  .vocabulary_begin = local_vocabulary() * shard.index});
  TRY(sink.ready(kPositionEmbedding));
  return sink.ready(kTokenEmbedding);
}

Status Gpt::Impl::head_forward(std::span<const ParamView> p, MicroBatch& batch) {
  CHECK(p.size() == 3);
  const ActivationArena& arena = batch.arena();
  float* norm = batch.at(arena.norm);
  forward_norm({.h = batch.at(arena.output),
                .weight = &p[kFinalNorm],
                .bias = &p[kFinalNorm + 1],
                .mean = batch.at(arena.mean),
                .rstd = batch.at(arena.rstd)},
               batch.at(arena.layers.back().middle), norm, batch);
  forward_product(
      {.n = local_vocabulary(), .k = options.config.width, .x = norm, .weight = &p[kTied]},
      {.y = batch.logits()}, batch);
  if (batch.input().targets == nullptr) return {};
  return shard.size == 1 ? classify(batch) : classify_sharded(batch);
}

ClassifierShape Gpt::Impl::classifier_shape(const MicroBatch& batch) const {
  return {.rows = batch.rows(),
          .columns = local_vocabulary(),
          .vocabulary = options.config.vocabulary,
          .column_begin = local_vocabulary() * shard.index};
}

Status Gpt::Impl::classify(MicroBatch& batch) {
  ops.classifier(stream, {.logits = batch.logits(),
                          .targets = batch.input().targets,
                          .losses = batch.losses(),
                          .shape = classifier_shape(batch),
                          .gradient = batch.trains(),
                          .gradient_scale = batch.input().gradient_scale});
  return {};
}

Status Gpt::Impl::classify_sharded(MicroBatch& batch) {
  const ActivationArena& arena = batch.arena();
  const ClassifierShape shape = classifier_shape(batch);
  const int32_t* targets = batch.input().targets;
  float* maxima = batch.at(arena.maxima);
  float* sums = batch.at(arena.sums);
  float* target_logits = batch.at(arena.target_logits);
  ops.classifier_max(stream, {.logits = batch.logits(), .maxima = maxima, .shape = shape});
  TRY(region.max(maxima, batch.rows()));
  ops.classifier_sum(stream, {.logits = batch.logits(),
                              .targets = targets,
                              .maxima = maxima,
                              .sums = sums,
                              .target_logits = target_logits,
                              .shape = shape});
  TRY(region.sum(sums, batch.rows()));
  TRY(region.sum(target_logits, batch.rows()));
  ops.classifier_finish(stream, {.logits = batch.logits(),
                                 .targets = targets,
                                 .sums = sums,
                                 .target_logits = target_logits,
                                 .losses = batch.losses(),
                                 .shape = shape,
                                 .gradient = batch.trains(),
                                 .gradient_scale = batch.input().gradient_scale});
  return {};
}

Status Gpt::Impl::head_backward(std::span<const ParamView> p, MicroBatch& batch, GradSink& sink) {
  CHECK(p.size() == 3 && batch.input().targets != nullptr);
  const ActivationArena& arena = batch.arena();
  float* dnorm = scratch_tensor(scratch_at.branch);
  backward_product({.n = local_vocabulary(),
                    .k = options.config.width,
                    .x = batch.at(arena.norm),
                    .weight = &p[kTied]},
                   {.dy = batch.logits(), .dx = dnorm, .weight_id = kTokenEmbedding}, batch, sink);
  TRY(region.enter(dnorm, batch.rows() * options.config.width));
  const int64_t norm_id = parameters.entries.back().id - 1;  // the table ends with the final norm
  return backward_norm({.h = batch.at(arena.output),
                        .weight = &p[kFinalNorm],
                        .bias = &p[kFinalNorm + 1],
                        .mean = batch.at(arena.mean),
                        .rstd = batch.at(arena.rstd)},
                       false, norm_id, batch, sink);
}

}  // namespace lockstep
