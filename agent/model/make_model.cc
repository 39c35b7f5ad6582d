#include "agent/model/make_model.h"

#include <utility>

#include "agent/model/convnet/convnet.h"
#include "agent/model/mlp/mlp.h"
#include "agent/model/transformer/generate.h"
#include "agent/model/transformer/gpt.h"

namespace lockstep::model {
namespace {

GptOptions gpt_options(const ModelOptions& options, const ModelConfig& config) {
  return {.config = config,
          .stage = options.stage,
          .precision = options.precision,
          .recompute = options.recompute,
          .sequence_parallel = options.sequence_parallel,
          .splits_backward = options.splits_backward,
          .attention = options.kernels.attention,
          .dropout = options.dropout};
}

MlpOptions mlp_options(const ModelOptions& options, const MlpConfig& config) {
  return {.config = config,
          .stage = options.stage,
          .precision = options.precision,
          .splits_backward = options.splits_backward,
          .dropout = options.dropout};
}

ConvnetOptions convnet_options(const ModelOptions& options, const ConvnetConfig& config) {
  return {.config = config,
          .stage = options.stage,
          .precision = options.precision,
          .splits_backward = options.splits_backward,
          .convolutions = options.kernels.convolutions,
          .dropout = options.dropout};
}

// The models of the families, by the alternative of ModelDesign.
struct Maker {
  const ModelOptions& options;
  const kernels::OpTable& ops;
  kernels::Stream& stream;
  TpRegion& region;
  BatchSums& batch;

  Result<std::unique_ptr<Model>> operator()(const ModelConfig& config) const {
    TRY_ASSIGN(Gpt gpt, Gpt::create(gpt_options(options, config), ops, stream, region));
    return std::unique_ptr<Model>(std::make_unique<Gpt>(std::move(gpt)));
  }
  Result<std::unique_ptr<Model>> operator()(const MlpConfig& config) const {
    TRY_ASSIGN(std::unique_ptr<Mlp> mlp,
               Mlp::create(mlp_options(options, config), ops, stream, region));
    return std::unique_ptr<Model>(std::move(mlp));
  }
  Result<std::unique_ptr<Model>> operator()(const ConvnetConfig& config) const {
    TRY_ASSIGN(std::unique_ptr<Convnet> convnet,
               Convnet::create(convnet_options(options, config), ops, stream, region, batch));
    return std::unique_ptr<Model>(std::move(convnet));
  }
};

struct Measurer {
  const ModelOptions& options;
  const TensorShard& shard;
  const ActivationShape& shape;
  kernels::DeviceType device;

  ModelMemory operator()(const ModelConfig& config) const {
    return gpt_memory(gpt_options(options, config), shard, shape, device);
  }
  ModelMemory operator()(const MlpConfig& config) const {
    return mlp_memory(mlp_options(options, config), shape, device);
  }
  ModelMemory operator()(const ConvnetConfig& config) const {
    return convnet_memory(convnet_options(options, config), shape, device);
  }
};

}  // namespace

Result<std::unique_ptr<Model>> make_model(const ModelOptions& options, const kernels::OpTable& ops,
                                          kernels::Stream& stream, TpRegion& region,
                                          BatchSums* batch) {
  static OwnBatch own;  // it has no state
  return std::visit(Maker{options, ops, stream, region, batch != nullptr ? *batch : own},
                    options.design);
}

ModelMemory model_memory(const ModelOptions& options, const TensorShard& shard,
                         const ActivationShape& shape, kernels::DeviceType device) {
  return std::visit(Measurer{options, shard, shape, device}, options.design);
}

GenerateMemory generate_memory(const ModelOptions& options, const TensorShard& shard,
                               kernels::DeviceType device) {
  const ModelConfig* config = transformer_of(options.design);
  const bool generates = config != nullptr && !config->design().is_bidirectional;
  return !generates ? GenerateMemory()
                    : generate_memory(gpt_options(options, *config), shard, device);
}

Status add_convolutions(const ModelOptions& options, int64_t samples, kernels::Device device,
                        ConvolutionChoice& choice) {
  const auto* config = std::get_if<ConvnetConfig>(&options.design);
  if (config == nullptr) return {};
  return add_convolutions(convnet_options(options, *config), samples, device, choice);
}

std::optional<kernels::AttentionShape> attention_of(const ModelDesign& design,
                                                    const TensorShard& shard,
                                                    const ActivationShape& shape) {
  const ModelConfig* config = transformer_of(design);
  if (config == nullptr) return std::nullopt;
  return attention_shape(*config, shard, shape.batch, shape.sequence);
}

}  // namespace lockstep::model
