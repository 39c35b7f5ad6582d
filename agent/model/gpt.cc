#include "agent/model/gpt.h"

#include <string>

#include "agent/model/gpt_impl.h"

namespace lockstep::model {

kernels::DType activation_dtype(kernels::DeviceType device, kernels::Precision precision) {
  const bool is_half =
      device == kernels::DeviceType::kCuda && precision == kernels::Precision::kBf16;
  return is_half ? kernels::DType::kBf16 : kernels::DType::kF32;
}

ActivationOptions activation_options(const GptOptions& options, kernels::DeviceType device) {
  const kernels::DType dtype = activation_dtype(device, options.precision);
  return {.value_bytes = static_cast<int64_t>(kernels::dtype_bytes(dtype)),
          .recompute = options.recompute,
          .head_logits_max = options.head_logits_max};
}

Gpt::Impl::Impl(const GptOptions& model_options, const kernels::OpTable& op_table,
                kernels::Stream& op_stream, TpRegion& tp_region)
    : options(model_options),
      ops(op_table),
      stream(op_stream),
      region(tp_region),
      shard(tp_region.shard()),
      dtype(activation_dtype(op_stream.device().type, model_options.precision)),
      activations(activation_options(model_options, op_stream.device().type)),
      parameters(parameter_arena(model_options.config, model_options.stage, shard)) {}

Result<Gpt> Gpt::create(const GptOptions& options, const kernels::OpTable& ops,
                        kernels::Stream& stream, TpRegion& region) {
  TRY(validate(options.config, region.shard().size));
  const Stage& stage = options.stage;
  if (stage.begin < 0 || stage.end > block_count(options.config) ||
      layer_count(stage, options.config) < 1) {
    return invalid("[model] expected a stage with at least one of the " +
                   std::to_string(options.config.layers) + " layers, got blocks " +
                   std::to_string(stage.begin) + " to " + std::to_string(stage.end));
  }
  return Gpt(std::make_unique<Impl>(options, ops, stream, region));
}

Gpt::Gpt(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
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
const kernels::OpTable& Gpt::ops() const {
  return impl_->ops;
}

GptMemory Gpt::memory_for(const ActivationShape& shape) const {
  return gpt_memory(impl_->options, shard(), shape, stream().device().type);
}

void Gpt::use_memory(const CallerMemory& memory) {
  impl_->scratch = memory.scratch;
  impl_->workspace = memory.workspace;
  impl_->angles = memory.angles;
}

Result<MicroBatch> Gpt::make_micro_batch(const ActivationShape& shape) {
  TRY_ASSIGN(kernels::Buffer owned,
             kernels::Buffer::allocate(stream().device(), memory_for(shape).activations,
                                       "the activations of a micro-batch"));
  TRY_ASSIGN(MicroBatch batch, make_micro_batch(shape, owned.workspace()));
  batch.owned_ = std::move(owned);
  return batch;
}

Result<MicroBatch> Gpt::make_micro_batch(const ActivationShape& shape, kernels::Workspace memory) {
  CHECK(shape.batch > 0 && shape.sequence > 0);
  TRY(impl_->reserve(shape));
  MicroBatch batch(shape, impl_->dtype,
                   activation_arena(config(), stage(), shard(), shape, impl_->activations));
  CHECK(memory.bytes >= static_cast<size_t>(batch.arena().bytes));
  batch.memory_ = static_cast<std::byte*>(memory.data);
  return batch;
}

Status Gpt::begin(MicroBatch& batch, const MicroBatchInput& input) {
  CHECK(input.batch > 0 && input.sequence > 0 && input.sequence <= config().context);
  CHECK(input.batch * input.sequence <= batch.capacity().rows());
  CHECK(input.logits_rows <= batch.arena().head_rows);
  batch.input_ = input;
  return impl_->reserve({input.batch, input.sequence, batch.capacity().mode});
}

Status Gpt::forward(int64_t block, std::span<const ParamView> parameters, MicroBatch& batch) {
  CHECK(block >= stage().begin && block < stage().end);
  return impl_->forward(block, parameters, batch);
}

Status Gpt::backward(int64_t block, std::span<const ParamView> parameters, MicroBatch& batch,
                     GradSink& sink) {
  CHECK(block >= stage().begin && block < stage().end);
  CHECK(batch.trains());
  return impl_->backward(block, parameters, batch, sink);
}

kernels::View Gpt::stage_gradient() {
  return impl_->scratch_tensor(impl_->scratch_layout.residual_gradient);
}

Status Gpt::Impl::forward(int64_t block, std::span<const ParamView> views, MicroBatch& batch) {
  if (block == 0) return embedding_forward(views, batch);
  if (block == head_block(options.config)) return head_forward(views, batch);
  return layer_forward(block, views, batch);
}

Status Gpt::Impl::backward(int64_t block, std::span<const ParamView> views, MicroBatch& batch,
                           GradSink& sink) {
  if (block == 0) return embedding_backward(batch, sink);
  if (block == head_block(options.config)) return head_backward(views, batch, sink);
  TRY(layer_backward(block, views, batch, sink));
  const bool tied_ends_here = options.config.tied && block == options.stage.begin && has_head();
  return tied_ends_here ? sink.ready(kTokenEmbedding) : Status();
}

Status Gpt::Impl::reserve(const ActivationShape& shape) {
  if (std::find(reserved_.begin(), reserved_.end(), shape) != reserved_.end()) return {};
  TRY(reserve_angles(shape.sequence));
  const BackwardScratch wanted = backward_scratch(options.config, shard, shape, activations);
  if (wanted.bytes > scratch_layout.bytes) {
    TRY(grow({scratch, owned_scratch_, "gradients of activations"},
             static_cast<size_t>(wanted.bytes)));
    scratch_layout = wanted;
  }
  const GptMemory memory = gpt_memory(options, shard, shape, stream.device().type);
  TRY(grow({workspace, owned_workspace_, "workspace of operations"}, memory.workspace));
  reserved_.push_back(shape);
  return {};
}

Status Gpt::Impl::grow(const Growth& growth, size_t bytes) {
  if (growth.memory.bytes >= bytes) return {};
  TRY(stream.synchronize());  // finish pending work before freeing memory it may use
  TRY_ASSIGN(growth.owned, kernels::Buffer::allocate(stream.device(), bytes, growth.by));
  growth.memory = growth.owned.workspace();
  return {};
}

}  // namespace lockstep::model
