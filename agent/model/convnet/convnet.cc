#include "agent/model/convnet/convnet.h"

#include <algorithm>

#include "common/layout/model_design.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::model {
namespace {

// Indices in the batch_design() of a convolutional network.
enum ImageTensor : size_t { kImageTensor, kLabelTensor };
// A unit's parameters: the filters, then a bias, or those of the norm.
enum UnitParameter : size_t {
  kFilters,
  kBias,
  kNormWeight = 1,
  kNormBias,
  kRunningMean,
  kRunningVariance
};

kernels::Conv2dShape shape_of(const ConvUnit& unit, int64_t samples) {
  return {.batch = samples,
          .height = unit.height,
          .width = unit.width,
          .channels = unit.channels,
          .filters = unit.filters,
          .filter_height = unit.filter_height,
          .filter_width = unit.filter_width,
          .stride = unit.stride,
          .padding = unit.padding};
}

ConvnetLayout layout_of(const ConvnetOptions& options, const ActivationShape& shape,
                        kernels::DeviceType device) {
  const kernels::DType dtype = activation_dtype(device, options.precision);
  return convnet_layout(options.config, shape,
                        {.stage = options.stage,
                         .value_bytes = static_cast<int64_t>(kernels::dtype_bytes(dtype)),
                         .splits_backward = options.splits_backward});
}

size_t workspace_of(const ConvnetOptions& options, int64_t samples, kernels::DeviceType device) {
  const std::vector<ConvUnit> units = convnet_units(options.config);
  size_t bytes = options.convolutions.workspace_bytes;
  for (int64_t index = options.stage.begin; index < options.stage.end; ++index) {
    const ConvUnit& unit = units[static_cast<size_t>(index)];
    bytes = std::max(bytes, kernels::conv2d_workspace(shape_of(unit, samples), device));
    if (!unit.has_norm()) continue;
    bytes = std::max(bytes, kernels::batchnorm_workspace(unit.filters, device));
  }
  return bytes;
}

// A linear layer, other than one that reads the images. Nothing else reads what it reads.
bool drops_input(const ConvUnit& unit) {
  return unit.input >= 0 && !unit.has_norm() && unit.padding == 0 &&
         unit.filter_height == unit.height && unit.filter_width == unit.width;
}

// Returns how many of a convolution's passes our own kernels compute.
int64_t own_passes(const kernels::Conv2dKernels& by, bool has_dx) {
  const auto own = [](kernels::Conv2dBy kernel) {
    return kernel == kernels::Conv2dBy::kOwn ? int64_t{1} : int64_t{0};
  };
  return own(by.forward) + own(by.filters) + (has_dx ? own(by.inputs) : 0);
}

// Leaves to our own kernels the passes that need more workspace. Returns how many there are.
int64_t drop_passes(size_t workspace_bytes, kernels::dnn::PreparedConv2d& prepared) {
  int64_t dropped = 0;
  for (kernels::dnn::PreparedConv2dPass* pass :
       {&prepared.forward, &prepared.inputs, &prepared.filters}) {
    if (pass->workspace_bytes <= workspace_bytes) continue;
    *pass = {};
    ++dropped;
  }
  return dropped;
}

bool is_whole_pieces(const ConvnetOptions& options) {
  const std::vector<Stage> pieces = convnet_pieces(options.config);
  return options.stage.begin < options.stage.end &&
         std::ranges::count(pieces, options.stage.begin, &Stage::begin) == 1 &&
         std::ranges::count(pieces, options.stage.end, &Stage::end) == 1;
}

}  // namespace

Status add_convolutions(const ConvnetOptions& options, int64_t samples, kernels::Device device,
                        ConvolutionChoice& choice) {
  const bool is_largest = choice.kernels.empty() || samples == choice.kernels.rbegin()->first;
  CHECK(is_largest || samples < choice.kernels.rbegin()->first);
  const std::vector<ConvUnit> units = convnet_units(options.config);
  const ConvnetLayout layout = layout_of(options, {.batch = samples, .sequence = 1}, device.type);
  std::vector<kernels::Conv2dKernels>& chosen = choice.kernels[samples];
  chosen.resize(units.size());
  for (int64_t block = options.stage.begin; block < options.stage.end; ++block) {
    const ConvUnit& unit = units[static_cast<size_t>(block)];
    const UnitPlaces& place = layout.units[static_cast<size_t>(block - options.stage.begin)];
    TRY_ASSIGN(kernels::dnn::PreparedConv2d prepared,
               kernels::dnn::prepare_conv2d(
                   device, {.shape = shape_of(unit, samples),
                            .dtype = activation_dtype(device.type, options.precision),
                            .has_dx = unit.input >= 0,
                            .adds_dx = place.adds_to_input}));
    if (!is_largest) choice.dropped_passes += drop_passes(choice.workspace_bytes, prepared);
    chosen[static_cast<size_t>(block)] = prepared.kernels();
    if (!is_largest) continue;
    choice.workspace_bytes = std::max(choice.workspace_bytes, prepared.workspace_bytes());
    choice.own_passes += own_passes(prepared.kernels(), unit.input >= 0);
    if (choice.reason.empty()) choice.reason = prepared.refusals();
  }
  return {};
}

ModelMemory convnet_memory(const ConvnetOptions& options, const ActivationShape& shape,
                           kernels::DeviceType device) {
  const ConvnetLayout layout = layout_of(options, shape, device);
  return {.activations = static_cast<size_t>(layout.bytes),
          .scratch = static_cast<size_t>(layout.scratch_bytes),
          .workspace = workspace_of(options, shape.batch, device)};
}

Convnet::Convnet(const ConvnetOptions& options, const kernels::OpTable& ops,
                 kernels::Stream& stream, BatchSums& batch)
    : options_(options),
      ops_(ops),
      stream_(stream),
      batch_sums_(batch),
      dtype_(activation_dtype(stream.device().type, options.precision)),
      parameters_(parameter_arena(ModelDesign(options.config), options.stage)),
      units_(convnet_units(options.config)) {
  for (int64_t block = 0; block < std::ssize(units_); ++block) {
    first_ids_.push_back(block_parameters(options.config, block).front());
  }
}

Result<std::unique_ptr<Convnet>> Convnet::create(const ConvnetOptions& options,
                                                 const kernels::OpTable& ops,
                                                 kernels::Stream& stream, const TpRegion& region,
                                                 BatchSums& batch) {
  const ModelDesign design = options.config;
  TRY(validate(design));
  if (region.shard().size != 1) {
    return invalid("[model] expected a convnet on one tensor-parallel rank, got a shard");
  }
  if (!is_whole_pieces(options)) {
    return invalid("[model] expected a stage of whole layers and residual blocks, got blocks " +
                   std::to_string(options.stage.begin) + " to " +
                   std::to_string(options.stage.end));
  }
  return std::unique_ptr<Convnet>(new Convnet(options, ops, stream, batch));
}

Result<std::unique_ptr<MicroBatch>> Convnet::new_micro_batch(const ActivationShape& shape,
                                                             kernels::Workspace memory) {
  const ModelMemory needed = convnet_memory(options_, shape, stream_.device().type);
  CHECK(shape.batch > 0 && memory.bytes >= needed.activations);
  CHECK(memory_.scratch.bytes >= needed.scratch && memory_.workspace.bytes >= needed.workspace);
  return std::unique_ptr<MicroBatch>(std::make_unique<ConvnetBatch>(*this, shape, memory));
}

Result<std::vector<int32_t>> Convnet::generate(ParamStore&, const GenerateOptions&) {
  return invalid("[generate] expected a transformer, got a convnet: it has no text to continue",
                 Blame::kConfig);
}

ConvnetBatch::ConvnetBatch(const Convnet& model, const ActivationShape& capacity,
                           kernels::Workspace memory)
    : model_(model),
      capacity_(capacity),
      layout_(layout_of(model.options_, capacity, model.stream_.device().type)),
      memory_(static_cast<std::byte*>(memory.data)) {}

kernels::View ConvnetBatch::at(int64_t place) const {
  return {place < 0 ? nullptr : memory_ + place, model_.dtype_};
}

float* ConvnetBatch::f32(int64_t place) const {
  return reinterpret_cast<float*>(memory_ + place);
}

std::byte* ConvnetBatch::scratch(int64_t offset) const {
  return static_cast<std::byte*>(model_.memory_.scratch.data) + offset;
}

kernels::View ConvnetBatch::gradient(int64_t offset) const {
  return {offset < 0 ? nullptr : scratch(offset), model_.dtype_};
}

double* ConvnetBatch::sums() const {
  return reinterpret_cast<double*>(scratch(layout_.sums));
}

kernels::ConstView ConvnetBatch::output_of(int64_t block) const {
  const int64_t place = places(block).pooled;
  if (place >= 0) return at(place);
  return input_.batch.tensor<float>(kImageTensor);
}

// On the CPU activations are fp32, whatever the precision.
kernels::ConstView ConvnetBatch::weight_of(const ParamView& weight) const {
  return model_.dtype_ == kernels::DType::kF32 ? kernels::ConstView(weight.value) : weight.product;
}

kernels::Conv2dShape ConvnetBatch::conv_shape(const ConvUnit& unit) const {
  return shape_of(unit, rows());
}

kernels::PoolShape ConvnetBatch::pool_shape(const ConvUnit& unit) const {
  return {.batch = rows(),
          .height = unit.conv_height(),
          .width = unit.conv_width(),
          .channels = unit.filters,
          .window_height = unit.pool.height,
          .window_width = unit.pool.width,
          .stride = unit.pool.stride,
          .padding = unit.pool.padding};
}

int64_t ConvnetBatch::pixels(const ConvUnit& unit) const {
  return rows() * unit.conv_height() * unit.conv_width();
}

int64_t ConvnetBatch::input_count() const {
  return stage().begin == 0 ? 0 : rows() * unit(stage().begin - 1).out_values();
}

int64_t ConvnetBatch::output_count() const {
  const int64_t last = stage().end - 1;
  return is_last(last) ? 0 : rows() * unit(last).out_values();
}

MicroBatch::Terms ConvnetBatch::losses() const {
  if (layout_.losses < 0) return {};
  return {f32(layout_.losses), rows()};
}

MicroBatch::Terms ConvnetBatch::hits() const {
  if (layout_.hits < 0) return {};
  return {f32(layout_.hits), rows()};
}

MicroBatch::Terms ConvnetBatch::top_hits() const {
  if (layout_.top_hits < 0) return {};
  return {f32(layout_.top_hits), rows()};
}

Status ConvnetBatch::begin(const PassInput& input) {
  CHECK(input.batch.rows > 0 && input.batch.rows <= capacity_.batch);
  input_ = input;
  if (stage().begin > 0 || layout_.before.pooled < 0) return {};
  const ConvUnit& first = unit(0);
  model_.ops_.cast(model_.stream_, {.x = input.batch.tensor<float>(kImageTensor),
                                    .out = at(layout_.before.pooled),
                                    .count = rows() * first.height * first.width * first.channels});
  return {};
}

Status ConvnetBatch::forward(int64_t block, std::span<const ParamView> parameters) {
  const ConvUnit& unit = this->unit(block);
  const UnitPlaces& place = places(block);
  drop_out(block, at(places(unit.input).pooled));
  model_.ops_.conv2d_forward(model_.stream_,
                             {.x = output_of(unit.input),
                              .weight = weight_of(parameters[kFilters]),
                              .bias = unit.has_norm() ? nullptr : parameters[kBias].value,
                              .y = at(place.conv),
                              .shape = conv_shape(unit),
                              .workspace = model_.memory_.workspace,
                              .by = kernels_of(block)});
  if (unit.has_norm()) {
    TRY(normalise(block, parameters));
  } else if (unit.relu) {
    model_.ops_.pointwise_forward(model_.stream_, {.x = at(place.conv),
                                                   .y = at(place.out),
                                                   .count = pixels(unit) * unit.filters,
                                                   .function = kernels::Pointwise::kRelu});
  }
  if (unit.pool.kind != UnitPool::Kind::kNone) pool(block);
  if (is_last(block) && !trains()) compute_losses();
  return {};
}

Status ConvnetBatch::take_statistics(int64_t block, std::span<const ParamView> parameters) {
  const ConvUnit& unit = this->unit(block);
  const UnitPlaces& place = places(block);
  // The running mean is the same on all ranks, and mostly near the mean.
  const float* shift = parameters[kRunningMean].value;
  model_.ops_.batchnorm_sums(model_.stream_, {.x = at(place.conv),
                                              .shift = shift,
                                              .sums = sums(),
                                              .rows = pixels(unit),
                                              .channels = unit.filters,
                                              .workspace = model_.memory_.workspace});
  TRY(model_.batch_sums_.add_up(sums(), kernels::batchnorm_sums_count(unit.filters),
                                Pass::kForward));
  model_.ops_.batchnorm_moments(model_.stream_, {.sums = sums(),
                                                 .shift = shift,
                                                 .mean = f32(place.mean),
                                                 .variance = f32(place.variance),
                                                 .channels = unit.filters});
  return {};
}

Status ConvnetBatch::normalise(int64_t block, std::span<const ParamView> parameters) {
  const ConvUnit& unit = this->unit(block);
  const UnitPlaces& place = places(block);
  if (trains()) TRY(take_statistics(block, parameters));
  model_.ops_.batchnorm_forward(
      model_.stream_,
      {.x = at(place.conv),
       .mean = trains() ? f32(place.mean) : parameters[kRunningMean].value,
       .variance = trains() ? f32(place.variance) : parameters[kRunningVariance].value,
       .weight = parameters[kNormWeight].value,
       .bias = parameters[kNormBias].value,
       .residual = unit.shortcut < 0 ? kernels::ConstView() : output_of(unit.shortcut),
       .y = at(place.out),
       .rows = pixels(unit),
       .channels = unit.filters,
       .relu = unit.relu});
  return {};
}

void ConvnetBatch::pool(int64_t block) {
  const ConvUnit& unit = this->unit(block);
  const UnitPlaces& place = places(block);
  const bool is_max = unit.pool.kind == UnitPool::Kind::kMax;
  model_.ops_.pool_forward(
      model_.stream_,
      {.x = at(place.out),
       .y = at(place.pooled),
       .places = place.places < 0 ? nullptr : reinterpret_cast<int32_t*>(memory_ + place.places),
       .shape = pool_shape(unit),
       .kind = is_max ? kernels::Pooling::kMax : kernels::Pooling::kAverage});
}

// The unit before may drop out in-place: its ReLU's backward reads only where values are above 0,
// and the gradients of dropped ones are 0.
void ConvnetBatch::drop_out(int64_t block, kernels::View values) {
  const DropoutOptions& dropout = model_.options_.dropout;
  const ConvUnit& unit = this->unit(block);
  if (!trains() || dropout.probability == 0 || !drops_input(unit)) return;
  const int64_t width = unit.height * unit.width * unit.channels;
  model_.ops_.dropout(model_.stream_, {.x = values,
                                       .out = values,
                                       .count = rows() * width,
                                       .first = input_.first_sample * width,
                                       .probability = dropout.probability,
                                       .key = kernels::dropout_key(dropout.seed, block)});
}

void ConvnetBatch::count_hits(int64_t top, float* hits) {
  const int64_t classes = model_.options_.config.classes;
  model_.ops_.classifier_hits(model_.stream_,
                              {.logits = output_of(std::ssize(model_.units_) - 1),
                               .targets = input_.batch.tensor<int32_t>(kLabelTensor),
                               .hits = hits,
                               .shape = {.rows = rows(), .columns = classes, .vocabulary = classes},
                               .top = top});
}

void ConvnetBatch::compute_losses() {
  const int64_t classes = model_.options_.config.classes;
  if (!trains()) {
    count_hits(1, f32(layout_.hits));
    count_hits(kTopAnswers, f32(layout_.top_hits));
  }
  model_.ops_.classifier(model_.stream_,
                         {.logits = at(layout_.units.back().pooled),
                          .targets = input_.batch.tensor<int32_t>(kLabelTensor),
                          .losses = f32(layout_.losses),
                          .shape = {.rows = rows(), .columns = classes, .vocabulary = classes},
                          .gradient = trains(),
                          .gradient_scale = input_.gradient_scale});
}

Status ConvnetBatch::backward(int64_t block, std::span<const ParamView> parameters,
                              GradSink& sink) {
  CHECK(trains());
  const bool last = is_last(block);
  if (last) {
    compute_losses();
    if (input_.observer != nullptr) input_.observer->head_forward_issued();
  }
  const ConvUnit& unit = this->unit(block);
  const kernels::View dy = unpool(block);
  const int64_t late = places(block).late;
  const kernels::View dconv = late >= 0 ? at(late) : dy;
  if (unit.has_norm()) {
    TRY(unnormalise(block, parameters, sink, {.dy = dy, .dx = dconv}));
  } else if (unit.relu) {
    model_.ops_.pointwise_backward(model_.stream_, {.y = at(places(block).out),
                                                    .dy = dy,
                                                    .dx = dconv,
                                                    .count = pixels(unit) * unit.filters,
                                                    .function = kernels::Pointwise::kRelu});
  }
  unconvolve(block, parameters, sink, dconv);
  if (last && input_.observer != nullptr) input_.observer->head_backward_issued();
  const int64_t first = model_.first_ids_[static_cast<size_t>(block)];
  for (int64_t id = first + std::ssize(parameters) - 1; id >= first; --id) TRY(sink.ready(id));
  return {};
}

// The gradient of the logits has taken their place.
kernels::View ConvnetBatch::unpool(int64_t block) {
  const ConvUnit& unit = this->unit(block);
  const UnitPlaces& place = places(block);
  if (is_last(block)) return at(place.pooled);
  if (unit.pool.kind == UnitPool::Kind::kNone) return gradient(place.gradient);
  const bool is_max = unit.pool.kind == UnitPool::Kind::kMax;
  const kernels::View dx = gradient(place.out_gradient);
  model_.ops_.pool_backward(
      model_.stream_,
      {.dy = gradient(place.gradient),
       .places = is_max ? reinterpret_cast<int32_t*>(memory_ + place.places) : nullptr,
       .dx = dx,
       .shape = pool_shape(unit),
       .kind = is_max ? kernels::Pooling::kMax : kernels::Pooling::kAverage});
  return dx;
}

// Also the gradients of the norm's parameters, and of its running statistics.
Status ConvnetBatch::unnormalise(int64_t block, std::span<const ParamView> parameters,
                                 GradSink& sink, const NormGradients& gradients) {
  const ConvUnit& unit = this->unit(block);
  const UnitPlaces& place = places(block);
  const int64_t id = model_.first_ids_[static_cast<size_t>(block)];
  model_.ops_.batchnorm_backward_sums(
      model_.stream_,
      {.dy = gradients.dy,
       .y = unit.relu ? kernels::ConstView(at(place.out)) : kernels::ConstView(),
       .x = at(place.conv),
       .mean = f32(place.mean),
       .variance = f32(place.variance),
       .dresidual = unit.shortcut < 0 ? kernels::View() : gradient(places(unit.shortcut).gradient),
       .adds_dresidual = place.adds_to_shortcut,
       .sums = sums(),
       .dweight = sink.buffer(id + kNormWeight),
       .dbias = sink.buffer(id + kNormBias),
       .rows = pixels(unit),
       .channels = unit.filters,
       .workspace = model_.memory_.workspace});
  const int64_t count = kernels::batchnorm_sums_count(unit.filters);
  TRY(model_.batch_sums_.add_up(sums(), count, Pass::kBackward));
  model_.ops_.batchnorm_backward(model_.stream_, {.dy = gradients.dy,
                                                  .x = at(place.conv),
                                                  .mean = f32(place.mean),
                                                  .variance = f32(place.variance),
                                                  .weight = parameters[kNormWeight].value,
                                                  .sums = sums(),
                                                  .dx = gradients.dx,
                                                  .rows = pixels(unit),
                                                  .channels = unit.filters});
  model_.ops_.batchnorm_running(model_.stream_,
                                {.mean = f32(place.mean),
                                 .variance = f32(place.variance),
                                 .running_mean = parameters[kRunningMean].value,
                                 .running_variance = parameters[kRunningVariance].value,
                                 .rows = sums() + count - 1,
                                 .dmean = sink.buffer(id + kRunningMean),
                                 .dvariance = sink.buffer(id + kRunningVariance),
                                 .channels = unit.filters,
                                 .factor = input_.gradient_scale * static_cast<float>(rows())});
  return {};
}

void ConvnetBatch::unconvolve(int64_t block, std::span<const ParamView> parameters, GradSink& sink,
                              kernels::View dy) {
  const ConvUnit& unit = this->unit(block);
  const int64_t id = model_.first_ids_[static_cast<size_t>(block)];
  const bool splits = model_.options_.splits_backward;
  if (splits && unit.input < 0) return;
  model_.ops_.conv2d_backward(
      model_.stream_,
      {.dy = dy,
       .x = output_of(unit.input),
       .weight = weight_of(parameters[kFilters]),
       .dx = unit.input < 0 ? kernels::View() : gradient(places(unit.input).gradient),
       .dweight = splits ? nullptr : sink.buffer(id + kFilters),
       .dbias = splits || unit.has_norm() ? nullptr : sink.buffer(id + kBias),
       .shape = conv_shape(unit),
       .adds_dx = places(block).adds_to_input,
       .workspace = model_.memory_.workspace,
       .by = kernels_of(block)});
  drop_out(block, gradient(places(unit.input).gradient));
}

Status ConvnetBatch::backward_weights(int64_t block, GradSink& sink) {
  CHECK(trains() && model_.options_.splits_backward);
  const ConvUnit& unit = this->unit(block);
  const int64_t id = model_.first_ids_[static_cast<size_t>(block)];
  model_.ops_.conv2d_backward(model_.stream_,
                              {.dy = at(places(block).late),
                               .x = output_of(unit.input),
                               .dweight = sink.buffer(id + kFilters),
                               .dbias = unit.has_norm() ? nullptr : sink.buffer(id + kBias),
                               .shape = conv_shape(unit),
                               .workspace = model_.memory_.workspace,
                               .by = kernels_of(block)});
  const int64_t last = unit.has_norm() ? kRunningVariance : kBias;
  for (int64_t i = last; i >= 0; --i) TRY(sink.ready(id + i));
  return {};
}

}  // namespace lockstep::model
