// The gradients of matrices that a backward has left for later (ModelOptions::splits_backward).
#include "agent/model/transformer/gpt_impl.h"

namespace lockstep::model {

Status GptImpl::ready(const Address& address, GradSink& sink) const {
  if (address.has_bias) TRY(sink.ready(address.id + 1));
  return sink.ready(address.id);
}

// Embedding and head have computed everything in backward(), since the gradients of all logits
// would not fit into memory.
Status GptImpl::backward_weights(int64_t block, GptBatch& batch, GradSink& sink) {
  const bool tied = options.config.tied;
  if (block == 0) {
    for (int64_t id = design().embedding_parameters() - 1; id > kTokenEmbedding; --id) {
      TRY(sink.ready(id));
    }
    return sink.ready(kTokenEmbedding);
  }
  if (block == head_block(options.config)) {
    const int64_t last = parameters.entries.back().id;
    const int64_t count = design().head_extras() + (tied ? 0 : 1);
    for (int64_t id = last; id > last - count; --id) TRY(sink.ready(id));
    return {};
  }
  TRY(layer_backward_weights(block, batch, sink));
  const bool tied_ends_here = tied && block == options.stage.begin && has_head();
  return tied_ends_here ? sink.ready(kTokenEmbedding) : Status();
}

Status GptImpl::late_product(int64_t block, const LateProduct& product, const GptBatch& batch,
                             GradSink& sink) {
  const Address address = address_of(block, product.part);
  ops.matmul_backward(stream, {.dy = product.dy,
                               .x = product.x,
                               .dweight = sink.buffer(address.id),
                               .dbias = address.has_bias ? sink.buffer(address.id + 1) : nullptr,
                               .m = batch.rows(),
                               .n = product.n,
                               .k = product.k,
                               .precision = options.precision,
                               .workspace = workspace});
  if (product.part == kQkv && address.has_bias) clear_key_bias(address.id + 1, sink);
  return ready(address, sink);
}

// Reads what keep() has left in the places of activations.
Status GptImpl::layer_backward_weights(int64_t block, GptBatch& batch, GradSink& sink) {
  const LayerActivations& at = layer_at(block, batch);
  const int64_t width = options.config.width;
  const auto rows = [&](kernels::View part) { return gather_rows(part, Pass::kBackward, batch); };

  TRY_ASSIGN(const kernels::View doutput, rows(layer_output(block, batch)));
  TRY(late_product(block, {kMlpOut, width, local_hidden(), batch.at(at.hidden), doutput}, batch,
                   sink));
  TRY_ASSIGN(const kernels::View norm2, rows(batch.at(at.norm2)));
  TRY(late_product(block, {kHidden, local_hidden_in(), width, norm2, batch.at(at.hidden_in)}, batch,
                   sink));
  TRY(ready(address_of(block, kNorm2), sink));
  TRY_ASSIGN(const kernels::View dattention, rows(batch.at(at.post_attention_stream)));
  TRY(late_product(block, {kAttentionOut, width, local_width(), batch.at(at.attention), dattention},
                   batch, sink));
  TRY_ASSIGN(const kernels::View norm1, rows(batch.at(at.norm1)));
  TRY(late_product(block, {kQkv, local_qkv(), width, norm1, batch.at(at.qkv)}, batch, sink));
  return ready(address_of(block, kNorm1), sink);
}

}  // namespace lockstep::model
