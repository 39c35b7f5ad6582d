// The parts of a Composition: groups, model, memory, store, exchange and executor.
#include <string>
#include <utility>
#include <vector>

#include "agent/model/make_model.h"
#include "agent/parallel/compose.h"
#include "agent/parallel/exchange_memory.h"
#include "agent/parallel/pulled_store.h"
#include "agent/parallel/shard/gathered_store.h"
#include "agent/parallel/shard/regathered_store.h"
#include "agent/parallel/shard/shard_memory.h"
#include "agent/parallel/shard/sharded_exchange.h"
#include "agent/parallel/stashed_store.h"
#include "agent/parallel/world_totals.h"
#include "common/layout/pipedream_schedule.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::parallel {

Status Composition::build(const Clock& clock) {
  TRY_ASSIGN(ops_, kernels::device_ops(options_.device.type));
  TRY_ASSIGN(stream_, kernels::Stream::create(options_.device));
  TRY_ASSIGN(reductions_, kernels::Stream::create(options_.device));
  TRY_ASSIGN(gathers_, kernels::Stream::create(options_.device));
  if (options_.groups.empty()) options_.groups = mesh_groups(options_.mesh);
  TRY_ASSIGN(groups_, RankGroups::create(world_, options_.groups));
  TRY_ASSIGN(data_group_, groups_->of(Axis::kData));
  state_layout_.emplace(options_.design, options_.mesh, shard_cut(options_));
  TRY(build_groups());
  TRY(build_matrix_group());
  TRY(build_region());
  TRY(build_shared_batch());
  TRY(build_models());
  TRY(allocate());
  TRY(meet_matrix_group());
  TRY(build_far_memory());
  timer_ = make_step_timer(stream_, clock);
  scalars_.emplace(StepScalars::Memory{.device = memory_of(DevicePart::kScalars).data,
                                       .pinned = memory_of(PinnedPart::kScalars).data});
  transfer_.emplace(stream_, HostTransfer::Buffers{memory_of(PinnedPart::kFirstPiece),
                                                   memory_of(PinnedPart::kSecondPiece)});
  if (options_.copies_share) {
    TRY_ASSIGN(copies_stream_, kernels::Stream::create(options_.device));
    copy_transfer_.emplace(copies_stream_,
                           HostTransfer::Buffers{memory_of(PinnedPart::kFirstCopiedPiece),
                                                 memory_of(PinnedPart::kSecondCopiedPiece)});
  }
  if (options_.precision == kernels::Precision::kBf16) {
    casts_.emplace(options_.design, shards(), options_.optimizer.rounding_seed, *ops_);
  }
  TRY(build_links());
  TRY(build_store());
  TRY(build_exchange(clock));
  TRY(tie_stages());
  TRY(build_tensor_sums());
  return build_executor();
}

Result<model::AttentionChoice> Composition::prepare_attention() const {
  if (options_.attention == kernels::AttentionBy::kOwn) return model::AttentionChoice();
  const std::optional<kernels::AttentionShape> shape = attention_of(options_);
  if (!shape) return invalid("[compose] expected a model with attention for cuDNN's kernels");
  model::AttentionChoice choice{.by = options_.attention, .shape = *shape};
  TRY_ASSIGN(choice.workspace_bytes,
             kernels::dnn::prepare_attention(options_.device, choice.shape));
  return choice;
}

Status Composition::prepare_kernels() {
  TRY_ASSIGN(kernels_.attention, prepare_attention());
  if (options_.convolutions == kernels::Conv2dBy::kOwn) return {};
  TRY_ASSIGN(kernels_.convolutions, prepare_convolutions(options_));
  return {};
}

// Its operations come between those of gradients, in another order on each rank's timeline, so they
// have a group of their own.
Status Composition::build_shared_batch() {
  if (!adds_up_batches(options_)) return {};
  TRY_ASSIGN(std::unique_ptr<comm::Communicator> group, data_group_->twin());
  shared_batch_ = std::make_unique<SharedBatch>(std::move(group), stream_);
  shared_batch_->observe_waits(waits_lapped());
  return {};
}

Status Composition::build_models() {
  TRY(prepare_kernels());
  for (const Stage& chunk : chunks_of(options_)) {
    TRY_ASSIGN(std::unique_ptr<model::Model> model,
               model::make_model(model_options(options_, chunk, kernels_), *ops_, stream_, region(),
                                 shared_batch_.get()));
    models_.push_back(std::move(model));
  }
  return {};
}

Status Composition::allocate() {
  const uint64_t group_bytes = world_.device_traits().memory_bytes;
  TRY_ASSIGN(
      memory_,
      plan_memory(options_, {.kernels = kernels_,
                             .collectives_bytes = group_bytes * device_groups(options_),
                             .data_rank = options_.place.data,
                             .is_stream_ordered = data_group_->device_traits().is_stream_ordered}));
  TRY_ASSIGN(arena_, kernels::Arena::allocate(options_.device, memory_.device));
  TRY_ASSIGN(pinned_, kernels::Arena::allocate_pinned(options_.device, memory_.pinned));
  for (const std::unique_ptr<model::Model>& model : models_) {
    model->use_memory({.scratch = memory_of(DevicePart::kScratch),
                       .gathered = memory_of(DevicePart::kGatheredRows),
                       .workspace = memory_of(DevicePart::kOperations),
                       .tables = memory_of(DevicePart::kTables)});
  }
  return {};
}

Status Composition::build_groups() {
  const int64_t size = shards().ranks();
  if (options_.sharding.sharding == Sharding::kNone) {
    replicas_ = data_group_;
    return {};
  }
  const int64_t index = state_layout_->shard_index(world_.rank());
  std::vector<int> others;
  std::vector<int> same;
  for (int64_t i = 0; i < size; ++i) {
    others.push_back(static_cast<int>(options_.place.data - index + i));
  }
  for (int64_t i = 0; i < state_layout_->replicas(); ++i) {
    same.push_back(static_cast<int>(index + i * size));
  }
  TRY_ASSIGN(reducing_, data_group_->sub_group(others));
  TRY_ASSIGN(gathering_, data_group_->sub_group(others));
  TRY_ASSIGN(other_replicas_, data_group_->sub_group(same));
  replicas_ = other_replicas_.get();
  return {};
}

Status Composition::build_far_memory() {
  const ShardMemory memory = shard_memory(options_);
  const std::span<const optim::StateKind> kinds = optim::state_kinds(options_.optimizer);
  const auto make = [&](PinnedPart part, const char* by, int64_t count) -> Result<FarMemory> {
    if (!offloads_to_file(options_)) return FarMemory(memory_of(part));
    return FarMemory::in_file({.folder = options_.offload.path,
                               .by = by,
                               .bytes = static_cast<int64_t>(float_bytes(count))});
  };
  for (size_t i = 0; i < kinds.size() && memory.far_states > 0; ++i) {
    const auto part = static_cast<PinnedPart>(static_cast<size_t>(PinnedPart::kFarStates) + i);
    TRY_ASSIGN(far_states_[i], make(part, kinds[i].meaning, memory.far_states));
  }
  if (memory.far_parameters > 0) {
    TRY_ASSIGN(far_parameters_,
               make(PinnedPart::kFarParameters, "parameters", memory.far_parameters));
  }
  return {};
}

float* Composition::parameters() const {
  if (far_parameters_.count() > 0) return far_parameters_.data();
  return floats_of(DevicePart::kParameters);
}

// A GPU's timer does not need them: its stream waits, not the host.
std::function<void(model::Pass, bool)> Composition::waits_lapped() {
  if (options_.device.type != kernels::DeviceType::kCpu) return {};
  return [this](model::Pass pass, bool begins) {
    const bool is_backward = pass == model::Pass::kBackward;
    const Status lapped = timer_->lap(!begins       ? StepPart::kCommunication
                                      : is_backward ? StepPart::kBackward
                                                    : StepPart::kForward);
    CHECK(lapped.ok());  // a CPU's timer reads a clock
  };
}

std::function<void(bool)> Composition::update_waits_lapped() {
  if (options_.device.type != kernels::DeviceType::kCpu) return {};
  return [this](bool begins) {
    const Status lapped = timer_->lap(begins ? StepPart::kUpdate : StepPart::kCommunication);
    CHECK(lapped.ok());  // a CPU's timer reads a clock
  };
}

std::function<void(bool)> Composition::backward_waits_lapped() {
  const auto lapped = waits_lapped();
  if (!lapped) return {};
  return [lapped](bool begins) { lapped(model::Pass::kBackward, begins); };
}

Status Composition::build_store() {
  switch (options_.sharding.sharding) {
    case Sharding::kNone:
      store_ = make_replica();
      return {};
    case Sharding::kOptimizer:
    case Sharding::kGradients: {
      TRY_ASSIGN(
          RegatheredStore store,
          RegatheredStore::create(
              {.replica = replica(), .layout = shards(), .casts = casts_ ? &*casts_ : nullptr},
              *gathering_, {.compute = stream_, .communication = gathers_}));
      store.observe_waits(waits_lapped());
      store_ = std::make_unique<RegatheredStore>(std::move(store));
      return {};
    }
    case Sharding::kParameters:
      return build_gathered_store();
  }
  return internal("[compose] unknown sharding");
}

std::unique_ptr<RankStore> Composition::make_replica() {
  if (options_.exchange == Exchange::kServers) {
    auto store = std::make_unique<PulledStore>(replica(), *options_.remote);
    store->observe_waits(waits_lapped());
    return store;
  }
  if (!steps_overlap(options_)) return std::make_unique<ReplicatedStore>(replica());
  return std::make_unique<StashedStore>(
      StashedStore::Options{
          .latest = replica(),
          .versions = stashed_versions(pipeline_shape(options_), options_.place.pipeline),
          .stash = floats_of(DevicePart::kStashed),
          .stashed_copies = bf16_of(DevicePart::kStashedCopies)},
      stream_);
}

ReplicatedStoreOptions Composition::replica() const {
  return {.design = options_.design,
          .blocks = blocks_of(chunks_of(options_)),
          .arena = shards().arena(),
          .parameters = parameters(),
          .copies = bf16_of(DevicePart::kCopies)};
}

Status Composition::build_gathered_store() {
  TRY_ASSIGN(
      GatheredStore store,
      GatheredStore::create({.design = options_.design,
                             .blocks = blocks_of(chunks_of(options_)),
                             .layout = shards(),
                             .sharding = options_.sharding,
                             .shard = parameters(),
                             .far_shard = far_parameters_.count() > 0 ? &far_parameters_ : nullptr,
                             .shard_copies = bf16_of(DevicePart::kCopies),
                             .gathered = floats_of(DevicePart::kGathered),
                             .copies = bf16_of(DevicePart::kGatheredCopies),
                             .casts = casts_ ? &*casts_ : nullptr},
                            *gathering_, *ops_, {.compute = stream_, .communication = gathers_}));
  store.observe_waits(waits_lapped());
  store_ = std::make_unique<GatheredStore>(std::move(store));
  return {};
}

// The memory of the optimizer's states, and those arrays that are far from the device.
Composition::StateArrays Composition::state_arrays() const {
  StateArrays arrays;
  for (size_t i = 0; i < arrays.states.size(); ++i) {
    const auto part = static_cast<DevicePart>(static_cast<size_t>(DevicePart::kStates) + i);
    arrays.states[i] = floats_of(part);
    if (far_states_[i].count() == 0) continue;
    arrays.far.states[i] = &far_states_[i];
    arrays.states[i] = far_states_[i].data();
  }
  if (far_parameters_.count() > 0) arrays.far.parameters = &far_parameters_;
  arrays.pieces = {
      .device = {memory_of(DevicePart::kFirstBuffer), memory_of(DevicePart::kSecondBuffer)},
      .pinned = {memory_of(PinnedPart::kFirstFarBuffer), memory_of(PinnedPart::kSecondFarBuffer)}};
  return arrays;
}

Status Composition::build_exchange(const Clock& clock) {
  TRY_ASSIGN(std::vector<comm::Communicator*> norms,
             norm_groups(*groups_, options_.mesh, steps_overlap(options_)));
  if (reducing_ != nullptr) norms.insert(norms.begin(), reducing_.get());
  const ExchangeParts parts{.group = *data_group_,
                            .norm_groups = std::move(norms),
                            .matrices = {matrix_group_.get(), update_waits_lapped()},
                            .ops = *ops_,
                            .compute = stream_,
                            .communication = reductions_};
  if (options_.sharding.sharding != Sharding::kNone) return build_sharded_exchange(parts, clock);
  const StateArrays arrays = state_arrays();
  TRY_ASSIGN(exchange_,
             make_exchange(options_.exchange,
                           {.design = options_.design,
                            .arena = shards().arena(),
                            .bucket_bytes = options_.bucket_bytes,
                            .optimizer = options_.optimizer,
                            .parameters = parameters(),
                            .gradients = floats_of(DevicePart::kGradients),
                            .states = arrays.states,
                            .staging = floats_of(DevicePart::kStaging),
                            .muon_ranks = muon_ranks_,
                            .muon_memory = memory_of(DevicePart::kMuon),
                            .travelling = bf16_of(DevicePart::kTravelling),
                            .copies = bf16_of(DevicePart::kCopies),
                            .casts = casts_ ? &*casts_ : nullptr,
                            .range = state_layout_->share(world_.rank(), options_.place.data),
                            .shared = options_.shared,
                            .remote = options_.remote,
                            .far = arrays.far,
                            .pieces = arrays.pieces,
                            .clock = &clock},
                           parts));
  return {};
}

Status Composition::build_sharded_exchange(const ExchangeParts& parts, const Clock& clock) {
  using optim::ArrayLayout;
  const bool keeps_shard = options_.sharding.sharding >= Sharding::kGradients;
  const ArrayLayout parameters_layout =
      has_all_parameters() ? ArrayLayout::kArena : ArrayLayout::kShard;
  const StateArrays arrays = state_arrays();
  float* const gradients = floats_of(DevicePart::kGradients);
  ShardedExchange::Options options{
      .design = options_.design,
      .gradients = {.layout = shards(),
                    .gradients = gradients,
                    .buffers = floats_of(DevicePart::kUnitGradients),
                    .travelling = bf16_of(DevicePart::kTravelling)},
      .arrays = {.parameters = parameters(),
                 .gradients = gradients,
                 .copies = bf16_of(DevicePart::kCopies),
                 .states = arrays.states,
                 .slices = shards().slices(state_layout_->shard_index(world_.rank())),
                 .parameters_layout = parameters_layout,
                 .gradients_layout = keeps_shard ? ArrayLayout::kShard : ArrayLayout::kArena,
                 .copies_layout = parameters_layout,
                 .states_layout = ArrayLayout::kShard,
                 .muon_ranks = muon_ranks_,
                 .muon_memory = memory_of(DevicePart::kMuon)},
      .optimizer = options_.optimizer,
      .far = arrays.far,
      .pieces = arrays.pieces,
      .clock = &clock};
  if (keeps_shard) options.gradients.places = gradient_places(options_.design, shards());
  options.observe_waits = backward_waits_lapped();
  TRY_ASSIGN(exchange_, ShardedExchange::create(options, parts, {*reducing_, *replicas_}));
  return {};
}

}  // namespace lockstep::parallel
