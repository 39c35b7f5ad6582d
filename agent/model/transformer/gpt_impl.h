#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/model/transformer/gpt.h"

namespace lockstep::model {

// Bytes of a Llama's table of angles; 0 for a GPT-2.
size_t angle_bytes(const ModelConfig& config, int64_t positions);

// Returns rows [begin, ...) of a [rows, columns] matrix.
kernels::View from_row(const kernels::View& view, int64_t begin, int64_t columns);
kernels::ConstView from_row(const kernels::ConstView& view, int64_t begin, int64_t columns);

// The implementation of Gpt and GptBatch: gpt.cc (construction, shapes), gpt_memory.cc,
// gpt_parts.cc (products, norms, rotary embedding), gpt_region.cc (products with sums over shards),
// gpt_layer.cc, gpt_embedding_head.cc (embedding and head). Except for the order of a layer's
// operations, the differences between the families are in gpt_parts.cc. Every tensor is row-major.
class GptImpl {
 public:
  GptImpl(const GptOptions& model_options, const kernels::OpTable& op_table,
          kernels::Stream& op_stream, TpRegion& tp_region);

  Status forward(int64_t block, std::span<const ParamView> views, GptBatch& batch);
  Status backward(int64_t block, std::span<const ParamView> views, GptBatch& batch, GradSink& sink);
  Status backward_weights(int64_t block, GptBatch& batch, GradSink& sink);
  // Provides scratch and workspace for passes of that shape. Allocates only for a new shape.
  Status reserve(const ActivationShape& shape);
  bool has_block(int64_t block) const {
    return block >= options.stage.begin && block < options.stage.end;
  }
  kernels::View scratch_tensor(int64_t place) const {
    return {static_cast<std::byte*>(scratch.data) + place, dtype};
  }
  float* scratch_f32(int64_t place) const {
    return place < 0 ? nullptr : static_cast<float*>(scratch_tensor(place).data);
  }

  GptOptions options;
  const kernels::OpTable& ops;
  kernels::Stream& stream;
  TpRegion& region;
  TensorShard shard;
  kernels::DType dtype;  // of activations
  ActivationOptions activations;
  TensorShard rows_kept;  // the part of the rows that this shard keeps between regions
  ParameterArena parameters;
  BackwardScratch scratch_layout;  // for the largest shape reserved
  kernels::Workspace scratch;
  kernels::Workspace gathered;  // [R,C] if shards keep parts of the rows
  kernels::Workspace workspace;
  kernels::Workspace angles;  // the table for apply_rotary(): the model's only constants

 private:
  // The parameters of a product or norm: a weight and maybe a bias, which follows it in the table
  // unless the weight is a tied embedding.
  struct Weights {
    const ParamView* weight = nullptr;
    const ParamView* bias = nullptr;  // null: none
    int64_t id = -1;                  // id of the weight
    int64_t bias_id = -1;
  };
  // The parts of a layer that have weights, in table order.
  enum LayerPart : int64_t { kNorm1, kQkv, kAttentionOut, kNorm2, kHidden, kMlpOut, kLayerParts };
  // `place` in the views, `id` in the table; followed by the bias if there is one.
  struct Address {
    int64_t place = 0;
    int64_t id = 0;
    bool has_bias = false;
  };
  // Returns how many parameters a layer has before a part.
  int64_t place_of(int64_t part) const;
  Address address_of(int64_t block, LayerPart part) const;
  Weights layer_weights(int64_t block, LayerPart part, std::span<const ParamView> views) const;
  static Weights weights_at(const Address& address, std::span<const ParamView> views);
  bool has_bias(LayerPart part) const;
  // A bias after a sum over shards must be added only once, so only shard 0 adds it.
  Weights with_bias_once(Weights weights) const {
    if (shard.index != 0) weights.bias = nullptr;
    return weights;
  }
  // Reports that all gradients of `weights` are complete.
  static Status ready(const Weights& weights, GradSink& sink);

  // y[m,n] = activation(x[m,k] W^T + b), and its gradients.
  struct Product {
    int64_t m = 0;
    int64_t n = 0;
    int64_t k = 0;
    kernels::ConstView x;
    Weights weights;
  };
  struct ProductOutput {
    kernels::View y;
    kernels::View pre_activation = {};
    kernels::Activation activation = kernels::Activation::kNone;
  };
  struct ProductGradient {
    kernels::ConstView dy;
    // If set, x = GELU(x_pre_activation), and dx is the gradient of x_pre_activation.
    kernels::ConstView x_pre_activation = {};
    kernels::View dx;
  };
  // Rows of a product that are computed together.
  struct Chunk {
    int64_t begin = 0;
    int64_t rows = 0;
  };
  void forward_product(const Product& product, const ProductOutput& output);
  // Without a sink: the gradient of x alone.
  void backward_product(const Product& product, const ProductGradient& gradient, GradSink* sink);

  // A norm of the residual stream h, which is in the micro-batch's arena: an RMS norm in a Llama,
  // else a layer norm.
  struct Norm {
    kernels::View h;
    Weights weights;
    float* mean = nullptr;  // null: not kept; an RMS norm has none
    float* rstd = nullptr;
  };
  // Returns the rows whose kept part is at `part`. All of them, in a place that every call of it
  // shares, are valid until the next one.
  RegionRows rows_of(kernels::View part, const GptBatch& batch) const;
  // Returns the rows that are all at `whole`.
  RegionRows rows_within(kernels::View whole, const GptBatch& batch) const;
  // With splits_backward, a layer's backward leaves what backward_weights() reads in the places of
  // activations that it has read for the last time:
  // - the gradient of an MLP's output where the output was
  // - the gradient of attention's output in `post_attention_stream`
  // - the gradients of `hidden_in` and `qkv` in their own places
  Status keep(kernels::View place, kernels::View values, int64_t count);
  // Returns the sink if backward computes the gradients of a layer's matrices now; null otherwise.
  GradSink* now(GradSink& sink) const { return options.splits_backward ? nullptr : &sink; }
  // Rows that the shards add up, in `count` chunks: one is summed while the next one is computed.
  struct Sums {
    RegionRows rows;
    int64_t count = 1;
  };
  Sums sums_of(const RegionRows& rows) const;
  // Starts the sum of all rows or, if there are several sums, of a chunk.
  void start_sum(const Sums& sums, const Chunk& chunk);
  static Chunk nth_chunk(int64_t rows, int64_t chunks, int64_t index);
  // A region's last product: its output, summed over the shards.
  Status last_product_forward(const Product& product, const RegionRows& output);
  // Computes gradient.dx and sums it over the shards; a single sum may also have rows that were
  // computed before. Meanwhile computes the gradients of the weights, if there is a sink.
  Status summed_backward(const Product& product, const ProductGradient& gradient, const Sums& sums,
                         GradSink* sink);
  // The same for a region's first product, whose input is the rows with this part. With
  // splits_backward: dx alone.
  Status first_product_backward(Product product, kernels::View input,
                                const ProductGradient& gradient, const GptBatch& batch,
                                GradSink& sink);
  void clear_key_bias(int64_t id, GradSink& sink);
  // A layer's product y = x W^T + b whose weights' gradients are computed apart.
  struct LateProduct {
    LayerPart part = kQkv;
    int64_t n = 0;
    int64_t k = 0;
    kernels::ConstView x;
    kernels::ConstView dy;
  };
  Status late_product(int64_t block, const LateProduct& product, const GptBatch& batch,
                      GradSink& sink);
  Status layer_backward_weights(int64_t block, GptBatch& batch, GradSink& sink);
  Status ready(const Address& address, GradSink& sink) const;
  // Brings the rows whose kept part is at `part` to all shards; returns them.
  Result<kernels::View> gather_rows(kernels::View part, Pass pass, const GptBatch& batch);

  // The rows that a layer's two norms add to what they read: the residual stream before them. It is
  // the stream itself, or its norm with norms_the_stream.
  kernels::ConstView stream_in_layer(int64_t block, const GptBatch& batch) const;
  kernels::ConstView stream_after_layer(int64_t block, const GptBatch& batch) const;

  // h += residual (null: nothing); y = norm(h).
  void forward_norm(const Norm& norm, kernels::ConstView residual, kernels::View y,
                    const GptBatch& batch);
  // residual_gradient <- (continues ? residual_gradient : 0) + gradient of the norm for
  // branch_gradient.
  // Reports the norm's weights as ready.
  Status backward_norm(const Norm& norm, bool continues, const GptBatch& batch, GradSink& sink);
  // The same for a norm in a layer, where the residual stream continues: with norms_the_stream,
  // from the norm's output.
  Status backward_layer_norm(int64_t block, LayerPart part, const Norm& norm, const GptBatch& batch,
                             GradSink& sink);
  // With norms_the_stream, the embedding's values are dropped after the norm, which is the first
  // one of the first layer.
  bool drops_embedding_after(int64_t block) const {
    return design().norms_the_stream && block == 1;
  }

  // The places in the model where values are dropped.
  enum class DropPlace : int64_t { kEmbedding, kAttention, kMlp };
  // Writes the kept rows of `from` to `to` without what is dropped at that place of the block,
  // which may be the same rows. Without dropout, or in evaluation, does nothing.
  void drop_out(int64_t block, DropPlace place, kernels::ConstView from, kernels::View to,
                const GptBatch& batch);
  // Returns the gradient of a branch's output before dropout, for the residual stream's gradient:
  // that itself without dropout, else in `scratch`.
  kernels::View before_dropout(int64_t block, DropPlace place, int64_t scratch_place,
                               const GptBatch& batch);
  bool drops() const { return options.dropout.probability > 0; }

  // Applies a Llama's rotary embedding to q and k of `qkv`; with `inverse`, rotates their gradients
  // back.
  void apply_rotary(kernels::View qkv, bool inverse, const GptBatch& batch);

  Status embedding_forward(std::span<const ParamView> views, GptBatch& batch);
  Status embedding_backward(GptBatch& batch, GradSink& sink);
  Status layer_forward(int64_t block, std::span<const ParamView> views, GptBatch& batch);
  // Runs attention, from the layer's input to its `post_attention_stream`. `residual` is the stream
  // that the first norm adds to the input; null if it has already been added.
  Status attention_forward(int64_t block, std::span<const ParamView> views,
                           kernels::ConstView residual, GptBatch& batch);
  // The MLP in two halves: up to the hidden values, and from them to the next layer's input.
  Status hidden_forward(int64_t block, std::span<const ParamView> views, GptBatch& batch);
  // The MLP's activation: SwiGLU, or GELU where the product does not end with it.
  void activation_forward(int64_t block, GptBatch& batch);
  kernels::View activation_input(int64_t block, const GptBatch& batch) const;
  // Runs the first norm, and drops the embedding's values after it.
  void first_norm_forward(int64_t block, std::span<const ParamView> views,
                          kernels::ConstView residual, GptBatch& batch);
  Status mlp_output_forward(int64_t block, std::span<const ParamView> views, GptBatch& batch);
  Status layer_backward(int64_t block, std::span<const ParamView> views, GptBatch& batch,
                        GradSink& sink);
  // Recomputes what backward reads and forward has not kept.
  Status recompute(int64_t block, std::span<const ParamView> views, GptBatch& batch);
  void recompute_ops(int64_t block, std::span<const ParamView> views, GptBatch& batch);
  Result<kernels::View> hidden_backward(int64_t block, const Weights& weights, GptBatch& batch,
                                        GradSink& sink);
  Status mlp_backward(int64_t block, std::span<const ParamView> views, GptBatch& batch,
                      GradSink& sink);
  Status attention_backward(int64_t block, std::span<const ParamView> views, GptBatch& batch,
                            GradSink& sink);

  // Brings the head's input to all shards, for its products.
  Status gather_head_input(const GptBatch& batch);
  // The rows that the head's product reads: the final norm's, or those after the transform.
  kernels::View head_input(const GptBatch& batch) const;
  Chunk head_chunk(int64_t begin, const GptBatch& batch) const;
  Norm head_norm(std::span<const ParamView> views, const GptBatch& batch) const;
  Weights head_weights(std::span<const ParamView> views) const;
  // Returns the parameters of the head's block that are `offset` after its first one, which is the
  // final norm's.
  Weights head_part(std::span<const ParamView> views, int64_t offset) const;
  Product transform_product(std::span<const ParamView> views, const GptBatch& batch) const;
  Norm transform_norm(std::span<const ParamView> views, const GptBatch& batch) const;
  void transform_forward(std::span<const ParamView> views, GptBatch& batch);
  // Turns the gradient of the transform's output into that of the final norm's output, in place.
  Status transform_backward(std::span<const ParamView> views, GptBatch& batch, GradSink& sink);
  Product head_product(std::span<const ParamView> views, const Chunk& chunk,
                       const GptBatch& batch) const;
  Status head_forward(std::span<const ParamView> views, GptBatch& batch);
  Status head_backward(std::span<const ParamView> views, GptBatch& batch, GradSink& sink);
  // The memory that HeadChunk describes: of the micro-batch, or in training the one that all of
  // them share. The last three are for a sharded vocabulary.
  struct HeadMemory {
    kernels::View logits;
    float* maxima = nullptr;
    float* sums = nullptr;
    float* target_logits = nullptr;
  };
  HeadMemory head_memory(const GptBatch& batch) const;
  // Computes a chunk's logits and losses; in training, also the logits' gradient, in place.
  Status head_losses(std::span<const ParamView> views, const Chunk& chunk, GptBatch& batch);
  void classify(const Chunk& chunk, GptBatch& batch);
  Status classify_sharded(const Chunk& chunk, GptBatch& batch);

  const LayerActivations& layer_at(int64_t block, const GptBatch& batch) const;
  Norm first_norm(int64_t block, std::span<const ParamView> views, const GptBatch& batch) const;
  Norm second_norm(int64_t block, std::span<const ParamView> views, const GptBatch& batch) const;
  // Returns where the block's MLP writes its output: the next layer's input.
  kernels::View layer_output(int64_t block, const GptBatch& batch) const;
  // Returns the stream that the block's first norm adds to its input; null in the stage's first
  // block.
  kernels::ConstView layer_residual(int64_t block, const GptBatch& batch) const;
  kernels::AttentionShape attention_shape(const GptBatch& batch) const {
    return model::attention_shape(options.config, shard, batch.input().batch,
                                  batch.input().sequence);
  }
  kernels::ClassifierShape classifier_shape(const Chunk& chunk) const;
  Status reserve_angles(int64_t positions);
  kernels::AttentionBy attention_by(const GptBatch& batch) const {
    const AttentionChoice& choice = options.attention;
    return attention_shape(batch) == choice.shape ? choice.by : kernels::AttentionBy::kOwn;
  }

  const BlockDesign& design() const { return options.config.design(); }
  kernels::GeluForm gelu_form() const {
    return design().mlp == MlpKind::kErfGelu ? kernels::GeluForm::kErf : kernels::GeluForm::kTanh;
  }
  bool has_head() const { return lockstep::has_head(options.stage, options.config); }
  int64_t first_layer_block() const { return std::max<int64_t>(options.stage.begin, 1); }
  int64_t local_width() const { return options.config.width / shard.size; }
  int64_t local_qkv() const { return options.config.local_qkv_width(shard.size); }
  int64_t local_hidden() const { return options.config.hidden_width() / shard.size; }
  int64_t local_hidden_in() const { return options.config.hidden_in_width() / shard.size; }
  int64_t local_vocabulary() const {
    return padded_vocabulary(options.config, shard.size) / shard.size;
  }
  // Returns the bias in the output's dtype, as matrix products expect it.
  kernels::ConstView bias_of(const Weights& weights) const {
    if (weights.bias == nullptr) return {};
    return dtype == kernels::DType::kF32 ? kernels::ConstView(weights.bias->value)
                                         : weights.bias->product;
  }

  // Ensures that `memory` has at least `bytes`, allocating into `owned` if it has less.
  struct Growth {
    kernels::Workspace& memory;
    kernels::Buffer& owned;
    const char* by;
  };
  Status grow(const Growth& growth, size_t bytes);

  kernels::Buffer owned_scratch_;
  kernels::Buffer owned_gathered_;
  kernels::Buffer owned_workspace_;
  kernels::Buffer owned_angles_;
  int64_t angle_positions_ = 0;  // positions in the table
  std::vector<ActivationShape> reserved_;
};

}  // namespace lockstep::model
