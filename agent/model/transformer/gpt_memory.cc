#include <algorithm>
#include <vector>

#include "agent/model/transformer/gpt_impl.h"

namespace lockstep::model {
namespace {

// The operations of one shape, on one shard.
struct Operations {
  const GptOptions& options;
  const TensorShard& shard;
  const ActivationShape& shape;
  kernels::DeviceType device;

  int64_t vocabulary() const { return padded_vocabulary(options.config, shard.size) / shard.size; }

  std::vector<kernels::MatmulShape> products() const {
    const ModelConfig& config = options.config;
    const int64_t rows = shape.rows();
    const int64_t width = config.width;
    std::vector<kernels::MatmulShape> shapes{{rows, config.local_qkv_width(shard.size), width},
                                             {rows, width, width / shard.size},
                                             {rows, config.hidden_in_width() / shard.size, width},
                                             {rows, width, config.hidden_width() / shard.size}};
    if (has_head(options.stage, config)) {
      const int64_t chunk = head_rows(config, shard, rows, activation_options(options, device));
      shapes.push_back({chunk, vocabulary(), width});
      if (config.design().head_transform) shapes.push_back({rows, width, width});
    }
    return shapes;
  }

  size_t workspace() const {
    const bool train = shape.mode == PassMode::kTrain;
    const int64_t width = options.config.width;
    const kernels::AttentionShape heads =
        attention_shape(options.config, shard, shape.batch, shape.sequence);
    size_t bytes = kernels::attention_workspace(heads, device);
    if (heads == options.attention.shape) {
      bytes = std::max(bytes, options.attention.workspace_bytes);
    }
    for (const kernels::MatmulShape& product : products()) {
      bytes =
          std::max(bytes, kernels::matmul_forward_workspace(product, options.precision, device));
      if (!train) continue;
      bytes =
          std::max(bytes, kernels::matmul_backward_workspace(product, options.precision, device));
    }
    if (!train) return bytes;
    if (options.config.design().token_types > 0) {  // the sum of the gradient's rows
      bytes = std::max(bytes, kernels::matmul_backward_workspace({shape.rows(), width, 0},
                                                                 kernels::Precision::kF32, device));
    }
    bytes = std::max(
        bytes, kernels::embedding_backward_workspace({shape.rows(), vocabulary()}, width, device));
    return std::max(bytes, options.config.design().norm == NormKind::kRms
                               ? kernels::rmsnorm_backward_workspace(width, device)
                               : kernels::layernorm_backward_workspace(width, device));
  }
};

}  // namespace

kernels::AttentionShape attention_shape(const ModelConfig& config, const TensorShard& shard,
                                        int64_t batch, int64_t sequence) {
  return {.batch = batch,
          .sequence = sequence,
          .heads = config.heads / shard.size,
          .head_dim = config.head_dim(),
          .kv_heads = config.local_kv_heads(shard.size),
          .causal = !config.design().is_bidirectional};
}

size_t angle_bytes(const ModelConfig& config, int64_t positions) {
  if (!config.design().has_rotary()) return 0;
  return static_cast<size_t>(positions * config.head_dim()) * sizeof(float);
}

ModelMemory gpt_memory(const GptOptions& options, const TensorShard& shard,
                       const ActivationShape& shape, kernels::DeviceType device) {
  const ModelConfig& config = options.config;
  const ActivationOptions how = activation_options(options, device);
  const int64_t activations = activation_arena(config, options.stage, shard, shape, how).bytes;
  const int64_t scratch = backward_scratch(config, options.stage, shard, shape, how).bytes;
  ModelMemory memory{.activations = static_cast<size_t>(activations),
                     .scratch = static_cast<size_t>(scratch),
                     .gathered = static_cast<size_t>(gathered_bytes(config, shard, shape, how)),
                     .workspace = Operations{options, shard, shape, device}.workspace(),
                     .tables = angle_bytes(config, shape.sequence)};
  if (!has_head(options.stage, config)) return memory;
  memory.logits_rows = head_rows(config, shard, shape.rows(), how);
  const int64_t columns = padded_vocabulary(config, shard.size) / shard.size;
  memory.logits_bytes = static_cast<size_t>(memory.logits_rows * columns * how.value_bytes);
  return memory;
}

}  // namespace lockstep::model
