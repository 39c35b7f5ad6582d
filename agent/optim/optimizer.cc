#include "agent/optim/optimizer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep::optim {
namespace {

// Returns the part [begin, begin + count) of a tensor's elements. With rows whose indices are not
// consecutive it begins with a row, or is within one.
kernels::ElementIndex index_from(const kernels::ElementIndex& index, int64_t begin, int64_t count) {
  if (index.columns == 0) return {.first = index.first + begin};
  kernels::ElementIndex part = index;
  part.first = kernels::index_of(index, begin);
  if (begin % index.columns + count <= index.columns) return {.first = part.first};
  CHECK(begin % index.columns == 0);
  return part;
}

// Cuts where index_from() needs it: after the rest of a row.
int64_t part_count(const kernels::ElementIndex& index, int64_t begin, int64_t count) {
  if (index.columns == 0 || begin % index.columns == 0) return count;
  return std::min(count, index.columns - begin % index.columns);
}

// Returns what the ops' arguments have in common.
template <class Args>
Args arguments(const OptimizerOptions& options, const OptimizerStep& step,
               std::span<const kernels::UpdatedTensor> tensors) {
  const bool has_average = options.average_decay > 0;
  const double rate = step.step == step.first_update ? 1 : 1 - options.average_decay;
  return {.tensors = tensors,
          .learning_rate = static_cast<float>(step.learning_rate),
          .gradient_scale = step.gradient_scale,
          .device_scale = step.device_scale,
          .step = step.step,
          .rounding_seed = options.rounding_seed,
          .average_state = has_average ? static_cast<int>(state_kinds(options).size()) - 1 : -1,
          .average_rate = static_cast<float>(rate)};
}

}  // namespace

Result<OptimizerKind> parse_optimizer(std::string_view name) {
  if (name == "adamw") return OptimizerKind::kAdamW;
  if (name == "sgd") return OptimizerKind::kSgd;
  if (name == "adagrad") return OptimizerKind::kAdagrad;
  if (name == "muon") return OptimizerKind::kMuon;
  return invalid(
      "[optimizer] expected adamw, sgd, adagrad or muon, got \"" + std::string(name) + "\"",
      Blame::kConfig);
}

std::span<const StateKind> state_kinds(const OptimizerOptions& options) {
  static constexpr StateKind kAverage = {kAverageName, "moving averages"};
  static constexpr StateKind kAdamW[] = {
      {"exp_avg", "first moments"}, {"exp_avg_sq", "second moments"}, kAverage};
  static constexpr StateKind kSgd[] = {{"momentum_buffer", "momentum"}, kAverage};
  static constexpr StateKind kAdagrad[] = {{"sum", "sums of squares"}, kAverage};
  static constexpr StateKind kFtrl[] = {
      {"linear", "linear terms"}, {"sum", "sums of squares"}, kAverage};
  std::span<const StateKind> kinds;
  switch (options.kind) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kMuon:
      kinds = kAdamW;
      break;
    case OptimizerKind::kSgd:
      kinds = kSgd;
      if (options.momentum == 0) kinds = kinds.subspan(1);
      break;
    case OptimizerKind::kAdagrad:
      kinds = kAdagrad;
      break;
    case OptimizerKind::kFtrl:
      kinds = kFtrl;
      break;
  }
  return options.average_decay > 0 ? kinds : kinds.first(kinds.size() - 1);
}

void update_tensors(const kernels::OpTable& ops, kernels::Stream& stream,
                    const OptimizerOptions& options, const OptimizerStep& step,
                    std::span<const kernels::UpdatedTensor> tensors) {
  switch (options.kind) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kMuon: {
      auto args = arguments<kernels::AdamW>(options, step, tensors);
      args.beta1 = static_cast<float>(options.beta1);
      args.beta2 = static_cast<float>(options.beta2);
      args.epsilon = static_cast<float>(options.epsilon);
      return ops.adamw(stream, args);
    }
    case OptimizerKind::kSgd: {
      auto args = arguments<kernels::Sgd>(options, step, tensors);
      args.momentum = static_cast<float>(options.momentum);
      args.nesterov = options.nesterov;
      return ops.sgd(stream, args);
    }
    case OptimizerKind::kAdagrad: {
      auto args = arguments<kernels::Adagrad>(options, step, tensors);
      args.epsilon = static_cast<float>(options.epsilon);
      return ops.adagrad(stream, args);
    }
    case OptimizerKind::kFtrl: {
      auto args = arguments<kernels::Ftrl>(options, step, tensors);
      args.beta = static_cast<float>(options.beta);
      args.l1 = static_cast<float>(options.l1);
      return ops.ftrl(stream, args);
    }
  }
}

std::vector<ShardSlice> updated_slices(const OptimizerArenas& arrays, const ParameterArena& arena) {
  if (arrays.slices.empty()) return {{.count = arena.count}};
  return arrays.slices;
}

Status Optimizer::take_states(const OptimizerArenas& arenas, size_t bytes, kernels::Device device) {
  for (const StateKind& kind : state_kinds(options_)) {
    const size_t i = states_.size();
    float* values = arenas.states[i];
    if (values == nullptr) {
      TRY_ASSIGN(owned_[i], kernels::Buffer::allocate(device, bytes, kind.meaning));
      values = owned_[i].f32();
    }
    states_.push_back({kind.name, values});
  }
  return {};
}

Result<Optimizer> Optimizer::create(const ModelDesign& design, const ParameterArena& arena,
                                    const OptimizerArenas& arenas, const OptimizerOptions& options,
                                    kernels::Device device, const kernels::OpTable& ops) {
  Optimizer optimizer;
  optimizer.ops_ = &ops;
  optimizer.options_ = options;
  const std::vector<ShardSlice> slices = updated_slices(arenas, arena);
  const int64_t states_count = arenas.states_layout == ArrayLayout::kArena
                                   ? arena.count
                                   : slices.back().local + slices.back().count;
  TRY(optimizer.take_states(arenas, static_cast<size_t>(states_count) * sizeof(float), device));
  if (options.kind == OptimizerKind::kMuon) {
    TRY(optimizer.take_matrices(design, arena, arenas, device));
  }
  const std::vector<Parameter> table = parameter_table(design);
  const std::vector<std::vector<IndexedBlock>> blocks = indexed_blocks(design, arena);
  for (size_t i = 0; i < arena.entries.size(); ++i) {
    const ArenaEntry& entry = arena.entries[i];
    for (const IndexedBlock& block : blocks[i]) {
      const int64_t begin = entry.offset + block.local;
      for (const ShardSlice& slice : offsets_within(slices, begin, begin + block.count)) {
        optimizer.add(arenas, slice,
                      {.first = block.first, .columns = block.columns, .stride = block.stride},
                      slice.offset - begin, table[static_cast<size_t>(entry.id)]);
      }
    }
  }
  return optimizer;
}

// Adds a slice of a tensor, which begins with the tensor's element `first`.
void Optimizer::add(const OptimizerArenas& arenas, const ShardSlice& slice,
                    const kernels::ElementIndex& index, int64_t first, const Parameter& parameter) {
  int64_t count = 0;
  for (int64_t at = 0; at < slice.count; at += count) {
    count = part_count(index, first + at, slice.count - at);
    kernels::UpdatedTensor tensor{
        .parameter = arenas.parameters + place_of(slice, arenas.parameters_layout) + at,
        .gradient = arenas.gradients + place_of(slice, arenas.gradients_layout) + at,
        .count = count,
        .weight_decay = parameter.weight_decay ? static_cast<float>(options_.weight_decay) : 0.0f,
        .index = index_from(index, first + at, count),
        .plain_rate = parameter.is_statistic ? kStatisticRate : 0.0f};
    if (arenas.copies != nullptr) {
      tensor.copy = kernels::View(arenas.copies + place_of(slice, arenas.copies_layout) + at);
    }
    for (size_t k = 0; k < states_.size(); ++k) {
      tensor.states[k] = states_[k].values + place_of(slice, arenas.states_layout) + at;
    }
    tensors_.push_back(tensor);
    if (muon_) (parameter.is_hidden_matrix ? matrices_ : others_).push_back(tensor);
  }
}

Status Optimizer::take_matrices(const ModelDesign& design, const ParameterArena& arena,
                                const OptimizerArenas& arenas, kernels::Device device) {
  kernels::Workspace memory = arenas.muon_memory;
  if (memory.data == nullptr) {
    const std::vector<MuonMatrix> matrices = muon_matrices(design, arena, 1);
    const size_t bytes = muon_bytes(matrices, options_.muon, device.type);
    TRY_ASSIGN(muon_memory_, kernels::Buffer::allocate(device, bytes, "Muon's matrices"));
    memory = muon_memory_.workspace();
  }
  muon_.emplace(Muon::Setup{.design = design,
                            .arena = arena,
                            .options = options_.muon,
                            .ranks = arenas.muon_ranks,
                            .gradients = arenas.gradients,
                            .gradients_layout = arenas.gradients_layout,
                            .buffers = states_[0].values,
                            .buffers_layout = arenas.states_layout,
                            .device = device.type,
                            .memory = memory});
  return {};
}

void Optimizer::step(kernels::Stream& stream, const OptimizerStep& step) {
  make_directions(stream, step);
  if (muon_) muon_->orthogonalise_all(*ops_, stream);
  apply(stream, step);
}

void Optimizer::make_directions(kernels::Stream& stream, const OptimizerStep& step) const {
  if (!muon_) return;
  muon_->make_directions(*ops_, stream,
                         {.factor = step.gradient_scale, .device_factor = step.device_scale});
}

void Optimizer::apply(kernels::Stream& stream, const OptimizerStep& step) const {
  if (!muon_) return update(stream, step, tensors_);
  update(stream, step, others_);
  apply_matrices(stream, step);
}

// SGD without momentum: its weight decay is decoupled, because the updates are no gradients.
void Optimizer::apply_matrices(kernels::Stream& stream, const OptimizerStep& step) const {
  OptimizerStep plain = step;
  plain.learning_rate *= options_.muon.rate;
  plain.gradient_scale = 1;
  plain.device_scale = muon_->update_factor(*ops_, stream, step.device_scale);
  ops_->sgd(stream, arguments<kernels::Sgd>(options_, plain, matrices_));
}

void Optimizer::update(kernels::Stream& stream, const OptimizerStep& step,
                       std::span<const kernels::UpdatedTensor> tensors) const {
  update_tensors(*ops_, stream, options_, step, tensors);
}

void Optimizer::refresh_copies(kernels::Stream& stream, int64_t step) {
  for (const kernels::UpdatedTensor& tensor : tensors_) {
    if (!tensor.copy) continue;
    ops_->cast(stream, {.x = tensor.parameter,
                        .out = tensor.copy,
                        .count = tensor.count,
                        .rounding_seed = step > 0 ? options_.rounding_seed : 0,
                        .step = step,
                        .index = tensor.index});
  }
}

}  // namespace lockstep::optim
