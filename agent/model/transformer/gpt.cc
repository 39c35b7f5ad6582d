#include "agent/model/transformer/gpt.h"

#include <string>
#include <utility>

#include "agent/model/transformer/generate.h"
#include "agent/model/transformer/gpt_impl.h"

namespace lockstep::model {
namespace {

// Indices in the batch_design() of a text.
enum TextTensor : size_t { kTokenTensor, kTargetTensor };

}  // namespace

ActivationOptions activation_options(const GptOptions& options, kernels::DeviceType device) {
  const kernels::DType dtype = activation_dtype(device, options.precision);
  return {.value_bytes = static_cast<int64_t>(kernels::dtype_bytes(dtype)),
          .recompute = options.recompute,
          .head_logits_max = options.head_logits_max,
          .splits_rows = options.sequence_parallel};
}

GptImpl::GptImpl(const GptOptions& model_options, const kernels::OpTable& op_table,
                 kernels::Stream& op_stream, TpRegion& tp_region)
    : options(model_options),
      ops(op_table),
      stream(op_stream),
      region(tp_region),
      shard(tp_region.shard()),
      dtype(activation_dtype(op_stream.device().type, model_options.precision)),
      activations(activation_options(model_options, op_stream.device().type)),
      rows_kept(row_shard(shard, activations)),
      parameters(parameter_arena(model_options.config, model_options.stage, shard)) {}

Result<Gpt> Gpt::create(const GptOptions& options, const kernels::OpTable& ops,
                        kernels::Stream& stream, TpRegion& region) {
  TRY(validate(options.config, region.shard().size));
  if (options.splits_backward && options.recompute != Recompute::kNone) {
    return invalid("[model] a backward in two parts cannot recompute activations");
  }
  if (options.sequence_parallel && options.config.context % region.shard().size != 0) {
    return invalid("[model] expected a context that " + std::to_string(region.shard().size) +
                   " shards divide, got " + std::to_string(options.config.context));
  }
  const Stage& stage = options.stage;
  if (stage.begin < 0 || stage.end > block_count(options.config) ||
      layer_count(stage, options.config) < 1) {
    return invalid("[model] expected a stage with at least one of the " +
                   std::to_string(options.config.layers) + " layers, got blocks " +
                   std::to_string(stage.begin) + " to " + std::to_string(stage.end));
  }
  return Gpt(std::make_unique<GptImpl>(options, ops, stream, region));
}

Gpt::Gpt(std::unique_ptr<GptImpl> impl) : impl_(std::move(impl)) {}
Gpt::Gpt(Gpt&&) noexcept = default;
Gpt::~Gpt() = default;

const GptOptions& Gpt::options() const {
  return impl_->options;
}
const ModelConfig& Gpt::config() const {
  return impl_->options.config;
}
const Stage& Gpt::stage() const {
  return impl_->options.stage;
}
const TensorShard& Gpt::shard() const {
  return impl_->shard;
}
const ParameterArena& Gpt::parameters() const {
  return impl_->parameters;
}
kernels::Stream& Gpt::stream() const {
  return impl_->stream;
}
TpRegion& Gpt::region() const {
  return impl_->region;
}
const kernels::OpTable& Gpt::ops() const {
  return impl_->ops;
}

ModelMemory Gpt::memory_for(const ActivationShape& shape) const {
  return gpt_memory(impl_->options, shard(), shape, stream().device().type);
}

void Gpt::use_memory(const SharedMemory& memory) {
  impl_->scratch = memory.scratch;
  impl_->gathered = memory.gathered;
  impl_->workspace = memory.workspace;
  impl_->angles = memory.tables;
}

Result<GptBatch> Gpt::make_micro_batch(const ActivationShape& shape) {
  TRY_ASSIGN(kernels::Buffer owned,
             kernels::Buffer::allocate(stream().device(), memory_for(shape).activations,
                                       "the activations of a micro-batch"));
  TRY_ASSIGN(GptBatch batch, make_micro_batch(shape, owned.workspace()));
  batch.owned_ = std::move(owned);
  return batch;
}

Result<GptBatch> Gpt::make_micro_batch(const ActivationShape& shape, kernels::Workspace memory) {
  CHECK(shape.batch > 0 && shape.sequence > 0);
  TRY(impl_->reserve(shape));
  GptBatch batch(*impl_, shape);
  CHECK(memory.bytes >= static_cast<size_t>(batch.arena().bytes));
  batch.memory_ = static_cast<std::byte*>(memory.data);
  return batch;
}

Result<std::unique_ptr<MicroBatch>> Gpt::new_micro_batch(const ActivationShape& shape,
                                                         kernels::Workspace memory) {
  TRY_ASSIGN(GptBatch batch, make_micro_batch(shape, memory));
  return std::unique_ptr<MicroBatch>(std::make_unique<GptBatch>(std::move(batch)));
}

Result<std::vector<int32_t>> Gpt::generate(ParamStore& store, const GenerateOptions& options) {
  return model::generate(*this, store, options);
}

GptBatch::GptBatch(GptImpl& model, const ActivationShape& capacity)
    : model_(&model),
      capacity_(capacity),
      dtype_(model.dtype),
      arena_(activation_arena(model.options.config, model.options.stage, model.shard, capacity,
                              model.activations)) {}

Status GptBatch::begin(const PassInput& input) {
  const DeviceBatch& batch = input.batch;
  return begin({.tokens = batch.tensor<int32_t>(kTokenTensor),
                .targets = batch.tensor<int32_t>(kTargetTensor),
                .batch = batch.rows,
                .sequence = capacity_.sequence,
                .gradient_scale = input.gradient_scale,
                .version = input.version,
                .observer = input.observer,
                .first_sample = input.first_sample});
}

Status GptBatch::begin(const GptInput& input) {
  CHECK(input.batch > 0 && input.sequence > 0 && input.sequence <= model_->options.config.context);
  CHECK(input.batch * input.sequence <= capacity_.rows());
  CHECK(input.batch * input.sequence % model_->rows_kept.size == 0);
  CHECK(input.logits_rows <= arena_.head_rows);
  input_ = input;
  return model_->reserve({input.batch, input.sequence, capacity_.mode});
}

int64_t GptBatch::input_count() const {
  return kept_rows() * model_->options.config.width;
}

int64_t GptBatch::kept_rows() const {
  return rows() / model_->rows_kept.size;
}

Status GptBatch::forward(int64_t block, std::span<const ParamView> parameters) {
  CHECK(model_->has_block(block));
  return model_->forward(block, parameters, *this);
}

Status GptBatch::backward(int64_t block, std::span<const ParamView> parameters, GradSink& sink) {
  CHECK(model_->has_block(block));
  CHECK(trains());
  return model_->backward(block, parameters, *this, sink);
}

Status GptBatch::backward_weights(int64_t block, GradSink& sink) {
  CHECK(model_->has_block(block));
  CHECK(trains() && model_->options.splits_backward);
  return model_->backward_weights(block, *this, sink);
}

kernels::View GptBatch::input_gradient() const {
  return model_->scratch_tensor(model_->scratch_layout.residual_gradient);
}

Status GptImpl::forward(int64_t block, std::span<const ParamView> views, GptBatch& batch) {
  if (block == 0) return embedding_forward(views, batch);
  if (block == head_block(options.config)) return head_forward(views, batch);
  return layer_forward(block, views, batch);
}

Status GptImpl::backward(int64_t block, std::span<const ParamView> views, GptBatch& batch,
                         GradSink& sink) {
  if (block == 0) return embedding_backward(batch, sink);
  if (block == head_block(options.config)) return head_backward(views, batch, sink);
  TRY(layer_backward(block, views, batch, sink));
  const bool tied_ends_here = options.config.tied && block == options.stage.begin && has_head();
  return tied_ends_here ? sink.ready(kTokenEmbedding) : Status();
}

Status GptImpl::reserve(const ActivationShape& shape) {
  if (std::find(reserved_.begin(), reserved_.end(), shape) != reserved_.end()) return {};
  TRY(reserve_angles(shape.sequence));
  const BackwardScratch wanted =
      backward_scratch(options.config, options.stage, shard, shape, activations);
  if (wanted.bytes > scratch_layout.bytes) {
    TRY(grow({scratch, owned_scratch_, "gradients of activations"},
             static_cast<size_t>(wanted.bytes)));
    scratch_layout = wanted;
  }
  const ModelMemory memory = gpt_memory(options, shard, shape, stream.device().type);
  TRY(grow({gathered, owned_gathered_, "rows of all shards"}, memory.gathered));
  TRY(grow({workspace, owned_workspace_, "workspace of operations"}, memory.workspace));
  reserved_.push_back(shape);
  return {};
}

Status GptImpl::grow(const Growth& growth, size_t bytes) {
  if (growth.memory.bytes >= bytes) return {};
  TRY(stream.synchronize());  // finish pending work before freeing memory it may use
  TRY_ASSIGN(growth.owned, kernels::Buffer::allocate(stream.device(), bytes, growth.by));
  growth.memory = growth.owned.workspace();
  return {};
}

}  // namespace lockstep::model
