#include "agent/model/mlp/mlp.h"

#include <algorithm>
#include <string>

#include "common/layout/model_design.h"

namespace lockstep::model {
namespace {

// Indices in the batch_design() of an MLP.
enum TableTensor : size_t { kFeatureTensor, kAnswerTensor };

MlpLayout layout_of(const MlpOptions& options, const ActivationShape& shape,
                    kernels::DeviceType device) {
  const kernels::DType dtype = activation_dtype(device, options.precision);
  return mlp_layout(options.config, shape, static_cast<int64_t>(kernels::dtype_bytes(dtype)));
}

size_t workspace_of(const MlpOptions& options, const ActivationShape& shape,
                    kernels::DeviceType device) {
  size_t bytes = 0;
  for (int64_t layer = 0; layer < options.config.layers(); ++layer) {
    const kernels::MatmulShape product{shape.batch, options.config.layer_outputs(layer),
                                       options.config.layer_inputs(layer)};
    bytes = std::max(bytes, kernels::matmul_forward_workspace(product, options.precision, device));
    if (shape.mode != PassMode::kTrain) continue;
    bytes = std::max(bytes, kernels::matmul_backward_workspace(product, options.precision, device));
  }
  return bytes;
}

// The bias as matrix products expect it: in the output's dtype.
kernels::ConstView bias_of(const ParamView& bias, kernels::DType dtype) {
  return dtype == kernels::DType::kF32 ? kernels::ConstView(bias.value) : bias.product;
}

// The ids of a layer's parameters.
int64_t weight_id(int64_t layer) {
  return 2 * layer;
}
int64_t bias_id(int64_t layer) {
  return 2 * layer + 1;
}

}  // namespace

ModelMemory mlp_memory(const MlpOptions& options, const ActivationShape& shape,
                       kernels::DeviceType device) {
  const MlpLayout layout = layout_of(options, shape, device);
  return {.activations = static_cast<size_t>(layout.bytes),
          .scratch = static_cast<size_t>(layout.scratch_bytes),
          .workspace = workspace_of(options, shape, device)};
}

Mlp::Mlp(const MlpOptions& options, const kernels::OpTable& ops, kernels::Stream& stream)
    : options_(options),
      ops_(ops),
      stream_(stream),
      dtype_(activation_dtype(stream.device().type, options.precision)),
      parameters_(parameter_arena(ModelDesign(options.config), options.stage)) {}

Result<std::unique_ptr<Mlp>> Mlp::create(const MlpOptions& options, const kernels::OpTable& ops,
                                         kernels::Stream& stream, const TpRegion& region) {
  const ModelDesign design = options.config;
  TRY(validate(design));
  if (options.stage != whole_model(design) || region.shard().size != 1) {
    return invalid("[model] expected a whole MLP, got a pipeline stage or tensor shard");
  }
  return std::unique_ptr<Mlp>(new Mlp(options, ops, stream));
}

Result<std::unique_ptr<MicroBatch>> Mlp::new_micro_batch(const ActivationShape& shape,
                                                         kernels::Workspace memory) {
  const ModelMemory needed = mlp_memory(options_, shape, stream_.device().type);
  CHECK(shape.batch > 0 && memory.bytes >= needed.activations);
  CHECK(memory_.scratch.bytes >= needed.scratch && memory_.workspace.bytes >= needed.workspace);
  return std::unique_ptr<MicroBatch>(std::make_unique<MlpBatch>(*this, shape, memory));
}

Result<std::vector<int32_t>> Mlp::generate(ParamStore&, const GenerateOptions&) {
  return invalid("[generate] expected a transformer, got an MLP: it has no text to continue",
                 Blame::kConfig);
}

MlpBatch::MlpBatch(const Mlp& model, const ActivationShape& capacity, kernels::Workspace memory)
    : model_(model),
      capacity_(capacity),
      layout_(layout_of(model.options_, capacity, model.stream_.device().type)),
      memory_(static_cast<std::byte*>(memory.data)) {}

kernels::View MlpBatch::at(int64_t place) const {
  return {place < 0 ? nullptr : memory_ + place, model_.dtype_};
}

float* MlpBatch::f32(int64_t place) const {
  return reinterpret_cast<float*>(memory_ + place);
}

kernels::View MlpBatch::gradient_of(int64_t layer) const {
  auto* scratch = static_cast<std::byte*>(model_.memory_.scratch.data);
  return {scratch + layout_.gradients[layer % 2], model_.dtype_};
}

kernels::ConstView MlpBatch::input_of(int64_t layer) const {
  if (layer > 0) return output_of(layer - 1);
  if (layout_.features >= 0) return at(layout_.features);
  return input_.batch.tensor<float>(kFeatureTensor);
}

kernels::View MlpBatch::output_of(int64_t layer) const {
  return at(is_last(layer) ? layout_.outputs : layout_.hidden[static_cast<size_t>(layer)]);
}

MicroBatch::Terms MlpBatch::hits() const {
  if (layout_.hits < 0) return {};
  return {f32(layout_.hits), rows()};
}

kernels::Pointwise MlpBatch::pointwise() const {
  return config().activation == MlpActivation::kTanh ? kernels::Pointwise::kTanh
                                                     : kernels::Pointwise::kRelu;
}

Status MlpBatch::begin(const PassInput& input) {
  CHECK(input.batch.rows > 0 && input.batch.rows <= capacity_.batch);
  input_ = input;
  if (layout_.features < 0) return {};
  model_.ops_.cast(model_.stream_, {.x = input.batch.tensor<float>(kFeatureTensor),
                                    .out = at(layout_.features),
                                    .count = rows() * config().inputs});
  return {};
}

// y = activation(x W^T + b). A product can end with GELU, but with no other activation.
Status MlpBatch::forward(int64_t layer, std::span<const ParamView> parameters) {
  CHECK(parameters.size() == 2);
  const bool hidden = !is_last(layer);
  const bool gelu = hidden && has_gelu();
  model_.ops_.matmul_forward(
      model_.stream_,
      {.x = input_of(layer),
       .weight = parameters[0].product,
       .bias = bias_of(parameters[1], model_.dtype_),
       .y = output_of(layer),
       .pre_activation = gelu ? at(layout_.hidden_in[static_cast<size_t>(layer)]) : kernels::View(),
       .m = rows(),
       .n = config().layer_outputs(layer),
       .k = config().layer_inputs(layer),
       .activation = gelu ? kernels::Activation::kGelu : kernels::Activation::kNone,
       .precision = model_.options_.precision,
       .workspace = model_.memory_.workspace});
  if (hidden && !has_gelu()) apply_activation(layer);
  if (hidden) drop_out(layer, output_of(layer));
  if (!hidden && !trains()) compute_losses();
  return {};
}

void MlpBatch::apply_activation(int64_t layer) {
  model_.ops_.pointwise_forward(model_.stream_, {.x = output_of(layer),
                                                 .y = output_of(layer),
                                                 .count = rows() * config().layer_outputs(layer),
                                                 .function = pointwise()});
}

// In place; of an output in forward, and of its gradient in backward.
void MlpBatch::drop_out(int64_t layer, kernels::View values) {
  const DropoutOptions& dropout = model_.options_.dropout;
  if (!trains() || dropout.probability == 0) return;
  const int64_t width = config().layer_outputs(layer);
  model_.ops_.dropout(model_.stream_, {.x = values,
                                       .out = values,
                                       .count = rows() * width,
                                       .first = input_.first_sample * width,
                                       .probability = dropout.probability,
                                       .key = kernels::dropout_key(dropout.seed, layer)});
}

// The derivative of tanh is computed from its value, before dropout. Dropped
// values stay 0: their gradients are 0 already.
void MlpBatch::unscale_output(int64_t layer) {
  const DropoutOptions& dropout = model_.options_.dropout;
  if (dropout.probability == 0 || config().activation != MlpActivation::kTanh) return;
  model_.ops_.scale(model_.stream_, {.x = output_of(layer),
                                     .out = output_of(layer),
                                     .count = rows() * config().layer_outputs(layer),
                                     .factor = static_cast<float>(1 - dropout.probability)});
}

void MlpBatch::unapply_activation(int64_t layer) {
  unscale_output(layer);
  model_.ops_.pointwise_backward(model_.stream_, {.y = output_of(layer),
                                                  .dy = gradient_of(layer),
                                                  .dx = gradient_of(layer),
                                                  .count = rows() * config().layer_outputs(layer),
                                                  .function = pointwise()});
}

void MlpBatch::compute_losses() {
  const kernels::View outputs = at(layout_.outputs);
  if (config().task == MlpTask::kRegression) {
    model_.ops_.squared_error(model_.stream_, {.outputs = outputs,
                                               .values = input_.batch.tensor<float>(kAnswerTensor),
                                               .losses = f32(layout_.losses),
                                               .rows = rows(),
                                               .columns = config().outputs,
                                               .gradient = trains(),
                                               .gradient_scale = input_.gradient_scale});
    return;
  }
  const auto* labels = input_.batch.tensor<int32_t>(kAnswerTensor);
  const kernels::ClassifierShape shape{
      .rows = rows(), .columns = config().outputs, .vocabulary = config().outputs};
  if (layout_.hits >= 0) {
    model_.ops_.classifier_hits(
        model_.stream_,
        {.logits = outputs, .targets = labels, .hits = f32(layout_.hits), .shape = shape});
  }
  model_.ops_.classifier(model_.stream_, {.logits = outputs,
                                          .targets = labels,
                                          .losses = f32(layout_.losses),
                                          .shape = shape,
                                          .gradient = trains(),
                                          .gradient_scale = input_.gradient_scale});
}

Status MlpBatch::backward(int64_t layer, std::span<const ParamView> parameters, GradSink& sink) {
  CHECK(parameters.size() == 2 && trains());
  if (is_last(layer)) {
    compute_losses();
    if (input_.observer != nullptr) input_.observer->head_forward_issued();
  }
  const bool first = layer == 0;
  model_.ops_.matmul_backward(
      model_.stream_,
      {.dy = is_last(layer) ? at(layout_.outputs) : gradient_of(layer),
       .x = input_of(layer),
       .weight = parameters[0].product,
       .x_pre_activation =
           first ? kernels::View() : at(layout_.hidden_in[static_cast<size_t>(layer - 1)]),
       .dx = first ? kernels::View() : gradient_of(layer - 1),
       .dweight = sink.buffer(weight_id(layer)),
       .dbias = sink.buffer(bias_id(layer)),
       .m = rows(),
       .n = config().layer_outputs(layer),
       .k = config().layer_inputs(layer),
       .precision = model_.options_.precision,
       .workspace = model_.memory_.workspace});
  if (!first) drop_out(layer - 1, gradient_of(layer - 1));
  if (!first && !has_gelu()) unapply_activation(layer - 1);
  if (is_last(layer) && input_.observer != nullptr) input_.observer->head_backward_issued();
  TRY(sink.ready(bias_id(layer)));
  return sink.ready(weight_id(layer));
}

}  // namespace lockstep::model
