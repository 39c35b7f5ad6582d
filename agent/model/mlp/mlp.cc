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
  return mlp_layout(options.config, shape,
                    {.stage = options.stage,
                     .value_bytes = static_cast<int64_t>(kernels::dtype_bytes(dtype)),
                     .splits_backward = options.splits_backward});
}

size_t workspace_of(const MlpOptions& options, const ActivationShape& shape,
                    kernels::DeviceType device) {
  size_t bytes = 0;
  for (int64_t layer = options.stage.begin; layer < options.stage.end; ++layer) {
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
  if (region.shard().size != 1) {
    return invalid("[model] expected an MLP on one tensor-parallel rank, got a shard");
  }
  const Stage& stage = options.stage;
  CHECK(stage.begin >= 0 && stage.begin < stage.end && stage.end <= options.config.layers());
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
  if (is_last(layer)) return at(layout_.outputs);
  const bool is_late = model_.options_.splits_backward && layer >= stage().begin;
  return is_late ? at(layout_.late[place_of(layer)]) : scratch_gradient(layer);
}

kernels::View MlpBatch::scratch_gradient(int64_t layer) const {
  if (layer < 0) return {};
  auto* scratch = static_cast<std::byte*>(model_.memory_.scratch.data);
  return {scratch + layout_.gradients[layer % 2], model_.dtype_};
}

kernels::ConstView MlpBatch::input_of(int64_t layer) const {
  if (layer > stage().begin) return output_of(layer - 1);
  if (layout_.input >= 0) return at(layout_.input);
  return input_.batch.tensor<float>(kFeatureTensor);
}

kernels::View MlpBatch::output_of(int64_t layer) const {
  return at(is_last(layer) ? layout_.outputs : layout_.hidden[place_of(layer)]);
}

int64_t MlpBatch::input_count() const {
  return stage().begin == 0 ? 0 : rows() * config().layer_inputs(stage().begin);
}

int64_t MlpBatch::output_count() const {
  const int64_t last = stage().end - 1;
  return is_last(last) ? 0 : rows() * config().layer_outputs(last);
}

MicroBatch::Terms MlpBatch::losses() const {
  if (layout_.losses < 0) return {};
  return {f32(layout_.losses), rows()};
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
  if (stage().begin > 0 || layout_.input < 0) return {};
  model_.ops_.cast(model_.stream_, {.x = input.batch.tensor<float>(kFeatureTensor),
                                    .out = at(layout_.input),
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
       .pre_activation = gelu ? at(layout_.hidden_in[place_of(layer)]) : kernels::View(),
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

// The derivative of tanh is computed from its value, before dropout. Dropped values stay 0: their
// gradients are 0 already. In-place, unless the next layer's late gradients still read the output.
kernels::ConstView MlpBatch::undropped_output(int64_t layer) {
  const DropoutOptions& dropout = model_.options_.dropout;
  const kernels::View output = output_of(layer);
  if (dropout.probability == 0 || config().activation != MlpActivation::kTanh) return output;
  const kernels::View out = model_.options_.splits_backward ? scratch_gradient(layer) : output;
  model_.ops_.scale(model_.stream_, {.x = output,
                                     .out = out,
                                     .count = rows() * config().layer_outputs(layer),
                                     .factor = static_cast<float>(1 - dropout.probability)});
  return out;
}

void MlpBatch::unapply_activation(int64_t layer) {
  model_.ops_.pointwise_backward(model_.stream_, {.y = undropped_output(layer),
                                                  .dy = gradient_of(layer),
                                                  .dx = gradient_of(layer),
                                                  .count = rows() * config().layer_outputs(layer),
                                                  .function = pointwise()});
}

// Where it is not part of a product.
void MlpBatch::unapply_gelu(int64_t layer) {
  model_.ops_.gelu_backward(model_.stream_, {.x = at(layout_.hidden_in[place_of(layer)]),
                                             .dy = gradient_of(layer),
                                             .dx = gradient_of(layer),
                                             .count = rows() * config().layer_outputs(layer)});
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
  } else if (layer + 1 == stage().end) {  // its gradient is a message
    unapply_output(layer);
  }
  unmultiply(layer, parameters, sink);
  if (layer > stage().begin) {
    drop_out(layer - 1, gradient_of(layer - 1));
    if (!has_gelu()) unapply_activation(layer - 1);
  }
  if (is_last(layer) && input_.observer != nullptr) input_.observer->head_backward_issued();
  TRY(sink.ready(bias_id(layer)));
  return sink.ready(weight_id(layer));
}

// In the order in which backward() of the next layer would do it.
void MlpBatch::unapply_output(int64_t layer) {
  if (has_gelu()) unapply_gelu(layer);
  drop_out(layer, gradient_of(layer));
  if (!has_gelu()) unapply_activation(layer);
}

void MlpBatch::unmultiply(int64_t layer, std::span<const ParamView> parameters, GradSink& sink) {
  const bool first = layer == 0;
  const bool splits = model_.options_.splits_backward;
  if (first && splits) return;
  const bool gelu = layer > stage().begin && has_gelu();
  model_.ops_.matmul_backward(
      model_.stream_,
      {.dy = gradient_of(layer),
       .x = input_of(layer),
       .weight = parameters[0].product,
       .x_pre_activation = gelu ? at(layout_.hidden_in[place_of(layer - 1)]) : kernels::View(),
       .dx = first ? kernels::View() : gradient_of(layer - 1),
       .dweight = splits ? nullptr : sink.buffer(weight_id(layer)),
       .dbias = splits ? nullptr : sink.buffer(bias_id(layer)),
       .m = rows(),
       .n = config().layer_outputs(layer),
       .k = config().layer_inputs(layer),
       .precision = model_.options_.precision,
       .workspace = model_.memory_.workspace});
}

Status MlpBatch::backward_weights(int64_t layer, GradSink& sink) {
  CHECK(trains() && model_.options_.splits_backward);
  model_.ops_.matmul_backward(model_.stream_, {.dy = gradient_of(layer),
                                               .x = input_of(layer),
                                               .dweight = sink.buffer(weight_id(layer)),
                                               .dbias = sink.buffer(bias_id(layer)),
                                               .m = rows(),
                                               .n = config().layer_outputs(layer),
                                               .k = config().layer_inputs(layer),
                                               .precision = model_.options_.precision,
                                               .workspace = model_.memory_.workspace});
  TRY(sink.ready(bias_id(layer)));
  return sink.ready(weight_id(layer));
}

}  // namespace lockstep::model
