#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/model/gpt.h"

namespace lockstep {

// What is behind Gpt: gpt.cc (life, shapes), gpt_parts.cc (products and norms), gpt_layer.cc,
// gpt_ends.cc (embedding and head). Every tensor is row-major; M rows are the micro-batch's R =
// B*T.
class Gpt::Impl {
 public:
  Impl(const GptOptions& model_options, const OpTable& op_table, Stream& op_stream,
       TpRegion& tp_region);

  Status forward(int64_t block, std::span<const ParamView> views, MicroBatch& batch);
  Status backward(int64_t block, std::span<const ParamView> views, MicroBatch& batch,
                  GradSink& sink);
  // Scratch and workspace for passes of that shape; allocates only if it was not seen before.
  Status reserve(const ActivationShape& shape);
  float* scratch_tensor(int64_t offset) const { return scratch.f32() + offset; }

  GptOptions options;
  const OpTable& ops;
  Stream& stream;
  TpRegion& region;
  TensorShard shard;
  ParameterArena parameters;
  BackwardScratch scratch_at;
  Buffer scratch;

 private:
  // y[R,n] = activation(x[R,k] W^T + b), and its gradients.
  struct Product {
    int64_t n = 0;
    int64_t k = 0;
    const float* x = nullptr;
    const ParamView* weight = nullptr;
    const ParamView* bias = nullptr;  // null: none
  };
  struct ProductOutput {
    float* y = nullptr;
    float* pre_activation = nullptr;
    Activation activation = Activation::kNone;
  };
  struct ProductGradient {
    const float* dy = nullptr;
    const float* x_pre_activation = nullptr;  // x is a GELU of it; dx then is the gradient of it
    float* dx = nullptr;
    int64_t weight_id = -1;  // the bias, if there is one, has the next id
  };
  void forward_product(const Product& product, const ProductOutput& output,
                       const MicroBatch& batch);
  void backward_product(const Product& product, const ProductGradient& gradient,
                        const MicroBatch& batch, GradSink& sink);

  // A norm of the residual stream h, at h's place in the micro-batch's arena.
  struct Norm {
    float* h = nullptr;
    const ParamView* weight = nullptr;
    const ParamView* bias = nullptr;
    float* mean = nullptr;
    float* rstd = nullptr;
  };
  // h += residual (null: nothing); y = norm(h).
  void forward_norm(const Norm& norm, const float* residual, float* y, const MicroBatch& batch);
  // scratch.stream <- (continues ? scratch.stream : 0) + gradient of the norm for scratch.branch.
  // The ids of the norm's weight and bias are weight_id and the next; both are ready after it.
  Status backward_norm(const Norm& norm, bool continues, int64_t weight_id, const MicroBatch& batch,
                       GradSink& sink);
  // Both of a product's or norm's gradients are complete.
  static Status ready_pair(int64_t weight_id, GradSink& sink);

  Status embedding_forward(std::span<const ParamView> views, MicroBatch& batch);
  Status embedding_backward(MicroBatch& batch, GradSink& sink);
  Status layer_forward(int64_t block, std::span<const ParamView> views, MicroBatch& batch);
  Status attention_forward(int64_t block, std::span<const ParamView> views, MicroBatch& batch);
  Status mlp_forward(int64_t block, std::span<const ParamView> views, MicroBatch& batch);
  Status layer_backward(int64_t block, std::span<const ParamView> views, MicroBatch& batch,
                        GradSink& sink);
  Status mlp_backward(int64_t block, std::span<const ParamView> views, MicroBatch& batch,
                      GradSink& sink);
  Status attention_backward(int64_t block, std::span<const ParamView> views, MicroBatch& batch,
                            GradSink& sink);
  Status head_forward(std::span<const ParamView> views, MicroBatch& batch);
  Status head_backward(std::span<const ParamView> views, MicroBatch& batch, GradSink& sink);
  Status classify(MicroBatch& batch);
  Status classify_sharded(MicroBatch& batch);

  const LayerActivations& layer_at(int64_t block, const MicroBatch& batch) const;
  // Where the block's MLP leaves its output: the next layer's input.
  float* layer_output(int64_t block, const MicroBatch& batch) const;
  // The stream that the norm at the start of the block adds to its input: null in the stage's
  // first.
  const float* layer_residual(int64_t block, const MicroBatch& batch) const;
  AttentionShape attention_shape(const MicroBatch& batch) const;
  ClassifierShape classifier_shape(const MicroBatch& batch) const;
  size_t workspace_bytes(const ActivationShape& shape) const;

  bool has_head() const { return lockstep::has_head(options.stage, options.config); }
  int64_t first_layer_block() const { return std::max<int64_t>(options.stage.begin, 1); }
  int64_t local_width() const { return options.config.width / shard.size; }
  int64_t local_vocabulary() const {
    return padded_vocabulary(options.config, shard.size) / shard.size;
  }
  // A bias that follows a sum over shards is added by one of them.
  const ParamView* bias_once(const ParamView& bias) const {
    return shard.index == 0 ? &bias : nullptr;
  }

  Buffer workspace_;
  std::vector<ActivationShape> reserved_;
};

}  // namespace lockstep
