#include "agent/parallel/compose.h"

#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "agent/model/make_model.h"
#include "agent/model/passes.h"
#include "agent/parallel/exchange_memory.h"
#include "agent/parallel/replicated_store.h"
#include "agent/parallel/shard/gathered_store.h"
#include "agent/parallel/shard/regathered_store.h"
#include "agent/parallel/shard/shard_memory.h"
#include "agent/parallel/shard/sharded_exchange.h"
#include "agent/parallel/world_totals.h"
#include "common/layout/pipeline_schedule.h"
#include "common/layout/schedule_check.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::parallel {
namespace {

kernels::Workspace part_of(const kernels::Arena& arena, DevicePart part) {
  return arena.workspace(static_cast<size_t>(part));
}

kernels::Workspace part_of(const kernels::Arena& pinned, PinnedPart part) {
  return pinned.workspace(static_cast<size_t>(part));
}

kernels::Bf16* bf16_of(const kernels::Arena& arena, DevicePart part) {
  return static_cast<kernels::Bf16*>(part_of(arena, part).data);
}

float* floats_of(const kernels::Arena& arena, DevicePart part) {
  return static_cast<float*>(part_of(arena, part).data);
}

// Refuses what this version does not carry out. Jobs are checked before (common/api/rules.h).
Status check_sharing(const ComposeOptions& options) {
  const ShardingOptions& sharding = options.sharding;
  const bool is_sharded = sharding.sharding != Sharding::kNone;
  if (sharding.ranks < 1 || options.mesh.data % sharding.ranks != 0 ||
      (!is_sharded && sharding.ranks != 1)) {
    return invalid("[compose] the " + std::to_string(options.mesh.data) +
                   " data-parallel ranks cannot be divided into groups of " +
                   std::to_string(sharding.ranks));
  }
  if (sharding.gathers_bf16 && sharding.sharding != Sharding::kParameters) {
    return invalid("[compose] parameters travel as bf16 only if they are sharded");
  }
  const bool is_other = options.exchange != Exchange::kAllReduce;
  if (is_other &&
      (is_sharded || sharding.reduces_bf16 || options.offload.offload != Offload::kNone)) {
    return invalid("[compose] the exchange " + std::string(exchange_name(options.exchange)) +
                   " works only without sharding, offload and bf16 gradients");
  }
  if (options.offload.offload == Offload::kParameters &&
      sharding.sharding != Sharding::kParameters) {
    return invalid("[compose] parameters are offloaded only if they are sharded");
  }
  if (options.offload.offload == Offload::kParameters && offloads_to_file(options) &&
      options.device.type == kernels::DeviceType::kCuda) {
    return invalid(
        "[compose] this version offloads a GPU's parameters only to page-locked memory, "
        "not to \"" +
        options.offload.path + "\": omit offloadPath");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Composition>> Composition::create(const ComposeOptions& options,
                                                         comm::Communicator& world,
                                                         const Clock& clock) {
  const Mesh& mesh = options.mesh;
  if (mesh.size() != world.size()) {
    return invalid("[compose] the mesh needs " + std::to_string(mesh.size()) +
                   " ranks, but the world has " + std::to_string(world.size()));
  }
  if (mesh.pipeline != 1 || mesh.tensor != 1) {
    return invalid("[compose] pipeline and tensor parallelism are not in this version");
  }
  TRY(check_sharing(options));
  std::unique_ptr<Composition> composition(new Composition(world, options));
  TRY(composition->build(clock));
  return composition;
}

// Finish pending work before freeing memory it may use.
Composition::~Composition() {
  if (store_ != nullptr) (void)store_->settle();
  (void)reductions_.synchronize();
  (void)gathers_.synchronize();
  (void)stream_.synchronize();
}

Status Composition::build(const Clock& clock) {
  TRY_ASSIGN(ops_, kernels::device_ops(options_.device.type));
  TRY_ASSIGN(stream_, kernels::Stream::create(options_.device));
  TRY_ASSIGN(reductions_, kernels::Stream::create(options_.device));
  TRY_ASSIGN(gathers_, kernels::Stream::create(options_.device));
  place_ = coordinates(options_.mesh, world_.rank());
  if (options_.groups.empty()) options_.groups = mesh_groups(options_.mesh);
  TRY_ASSIGN(groups_, RankGroups::create(world_, options_.groups));
  TRY_ASSIGN(data_group_, groups_->of(Axis::kData));
  state_layout_.emplace(options_.design, options_.mesh, shard_cut(options_));
  TRY(build_groups());
  TRY(build_model());
  TRY(allocate());
  TRY(build_far_memory());
  timer_ = make_step_timer(stream_, clock);
  TRY(build_parts(clock));
  return build_executor();
}

Result<model::AttentionChoice> Composition::prepare_attention() const {
  if (options_.attention == kernels::AttentionBy::kOwn) return model::AttentionChoice();
  const std::optional<kernels::AttentionShape> shape =
      model::attention_of(options_.design, micro_batch_shape(options_, PassMode::kTrain));
  if (!shape) return invalid("[compose] expected a model with attention for cuDNN's kernels");
  model::AttentionChoice choice{.by = options_.attention, .shape = *shape};
  TRY_ASSIGN(choice.workspace_bytes,
             kernels::dnn::prepare_attention(options_.device, choice.shape));
  return choice;
}

Status Composition::build_model() {
  TRY_ASSIGN(attention_, prepare_attention());
  TRY_ASSIGN(model_,
             model::make_model(model_options(options_, attention_), *ops_, stream_, region_));
  return {};
}

Status Composition::allocate() {
  const comm::DeviceTraits traits = data_group_->device_traits();
  const uint64_t groups = options_.sharding.sharding == Sharding::kNone ? 1
                          : replicas_->size() == 1                      ? 2
                                                                        : 3;
  TRY_ASSIGN(memory_, plan_memory(options_, {.attention = attention_,
                                             .collectives_bytes = traits.memory_bytes * groups,
                                             .data_rank = place_.data,
                                             .is_stream_ordered = traits.is_stream_ordered}));
  TRY_ASSIGN(arena_, kernels::Arena::allocate(options_.device, memory_.device));
  TRY_ASSIGN(pinned_, kernels::Arena::allocate_pinned(options_.device, memory_.pinned));
  model_->use_memory({.scratch = part_of(*arena_, DevicePart::kScratch),
                      .workspace = part_of(*arena_, DevicePart::kOperations),
                      .tables = part_of(*arena_, DevicePart::kTables)});
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
    others.push_back(static_cast<int>(place_.data - index + i));
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
    if (!offloads_to_file(options_)) return FarMemory(part_of(*pinned_, part));
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
  return floats_of(*arena_, DevicePart::kParameters);
}

Status Composition::build_parts(const Clock& clock) {
  scalars_.emplace(StepScalars::Memory{.device = part_of(*arena_, DevicePart::kScalars).data,
                                       .pinned = part_of(*pinned_, PinnedPart::kScalars).data});
  transfer_.emplace(stream_, HostTransfer::Buffers{part_of(*pinned_, PinnedPart::kFirstPiece),
                                                   part_of(*pinned_, PinnedPart::kSecondPiece)});
  kernels::Bf16* copies = bf16_of(*arena_, DevicePart::kCopies);
  TRY(build_store(copies));
  return build_exchange(copies, clock);
}

// A GPU's timer does not need them: its stream waits, not the host.
std::function<void(model::Pass, bool)> Composition::waits_lapped() {
  if (options_.device.type != kernels::DeviceType::kCpu) return {};
  return [this](model::Pass pass, bool begins) {
    const bool is_backward = pass == model::Pass::kBackward;
    (void)timer_->lap(!begins       ? StepPart::kCommunication
                      : is_backward ? StepPart::kBackward
                                    : StepPart::kForward);
  };
}

Status Composition::build_store(kernels::Bf16* copies) {
  const ReplicatedStoreOptions replica{.design = options_.design,
                                       .stage = model_->stage(),
                                       .arena = shards().arena(),
                                       .parameters = parameters(),
                                       .copies = copies};
  const uint64_t seed = options_.optimizer.rounding_seed;
  switch (options_.sharding.sharding) {
    case Sharding::kNone:
      store_ = std::make_unique<ReplicatedStore>(replica);
      return {};
    case Sharding::kOptimizer:
    case Sharding::kGradients: {
      TRY_ASSIGN(RegatheredStore store,
                 RegatheredStore::create(
                     {.replica = replica, .layout = shards(), .rounding_seed = seed}, *gathering_,
                     *ops_, {.compute = stream_, .communication = gathers_}));
      store.observe_waits(waits_lapped());
      store_ = std::make_unique<RegatheredStore>(std::move(store));
      return {};
    }
    case Sharding::kParameters:
      break;
  }
  TRY_ASSIGN(
      GatheredStore store,
      GatheredStore::create({.design = options_.design,
                             .stage = model_->stage(),
                             .layout = shards(),
                             .sharding = options_.sharding,
                             .shard = parameters(),
                             .far_shard = far_parameters_.count() > 0 ? &far_parameters_ : nullptr,
                             .shard_copies = copies,
                             .gathered = floats_of(*arena_, DevicePart::kGathered),
                             .copies = bf16_of(*arena_, DevicePart::kGatheredCopies),
                             .has_products = options_.precision == kernels::Precision::kBf16,
                             .rounding_seed = seed},
                            *gathering_, *ops_, {.compute = stream_, .communication = gathers_}));
  store.observe_waits(waits_lapped());
  store_ = std::make_unique<GatheredStore>(std::move(store));
  return {};
}

Status Composition::build_exchange(kernels::Bf16* copies, const Clock& clock) {
  std::array<float*, optim::kStatesMax> states{};
  FarArrays far;
  for (size_t i = 0; i < states.size(); ++i) {
    states[i] = static_cast<float*>(arena_->at(static_cast<size_t>(DevicePart::kStates) + i));
    if (far_states_[i].count() == 0) continue;
    far.states[i] = &far_states_[i];
    states[i] = far_states_[i].data();
  }
  if (far_parameters_.count() > 0) far.parameters = &far_parameters_;
  const PieceMemory pieces{.device = {part_of(*arena_, DevicePart::kFirstBuffer),
                                      part_of(*arena_, DevicePart::kSecondBuffer)},
                           .pinned = {part_of(*pinned_, PinnedPart::kFirstFarBuffer),
                                      part_of(*pinned_, PinnedPart::kSecondFarBuffer)}};
  const ExchangeParts parts{.group = *data_group_,
                            .groups = *groups_,
                            .mesh = options_.mesh,
                            .ops = *ops_,
                            .compute = stream_,
                            .communication = reductions_};
  float* gradients = floats_of(*arena_, DevicePart::kGradients);
  kernels::Bf16* travelling = bf16_of(*arena_, DevicePart::kTravelling);
  const Sharding sharding = options_.sharding.sharding;
  if (sharding != Sharding::kNone) {
    const bool keeps_shard = sharding >= Sharding::kGradients;
    using optim::ArrayLayout;
    ShardedExchange::Options options{
        .design = options_.design,
        .gradients = {.layout = shards(),
                      .gradients = gradients,
                      .buffers = floats_of(*arena_, DevicePart::kUnitGradients),
                      .travelling = travelling},
        .arrays = {.parameters = parameters(),
                   .gradients = gradients,
                   .copies = copies,
                   .states = states,
                   .slices = shards().slices(state_layout_->shard_index(world_.rank())),
                   .gradients_layout = keeps_shard ? ArrayLayout::kShard : ArrayLayout::kArena,
                   .states_layout = ArrayLayout::kShard},
        .optimizer = options_.optimizer,
        .far = far,
        .pieces = pieces,
        .clock = &clock};
    if (const auto lapped = waits_lapped(); lapped) {
      options.observe_waits = [lapped](bool begins) { lapped(model::Pass::kBackward, begins); };
    }
    if (keeps_shard) options.gradients.places = gradient_places(options_.design, shards());
    if (!has_all_parameters()) {
      options.arrays.parameters_layout = ArrayLayout::kShard;
      options.arrays.copies_layout = ArrayLayout::kShard;
    }
    TRY_ASSIGN(exchange_, ShardedExchange::create(options, parts, {*reducing_, *replicas_}));
    return {};
  }
  ExchangeOptions options{.design = options_.design,
                          .arena = shards().arena(),
                          .bucket_bytes = options_.bucket_bytes,
                          .optimizer = options_.optimizer,
                          .parameters = parameters(),
                          .gradients = gradients,
                          .states = states,
                          .staging = floats_of(*arena_, DevicePart::kStaging),
                          .travelling = travelling,
                          .copies = copies,
                          .range = state_layout_->share(world_.rank(), place_.data),
                          .shared = options_.shared,
                          .far = far,
                          .pieces = pieces,
                          .clock = &clock};
  if (copies != nullptr) {
    copies_.emplace(ParameterCopies::Options{.design = options_.design,
                                             .arena = shards().arena(),
                                             .parameters = parameters(),
                                             .copies = copies,
                                             .rounding_seed = options_.optimizer.rounding_seed},
                    *ops_);
    options.refresh_copies = [this](int64_t step) { copies_->refresh(stream_, step); };
  }
  TRY_ASSIGN(exchange_, make_exchange(options_.exchange, options, parts));
  return {};
}

Result<std::unique_ptr<model::MicroBatch>> Composition::make_micro_batch(PassMode mode) {
  return model_->new_micro_batch(micro_batch_shape(options_, mode),
                                 part_of(*arena_, DevicePart::kActivations));
}

// The micro-batches that train and evaluate share their memory: no step is under way during an
// evaluation.
Status Composition::build_executor() {
  const PipelineShape shape{.kind = PipelineKind::kNaive,
                            .stages = options_.mesh.pipeline,
                            .micro_batches = options_.micro_batches};
  TRY_ASSIGN(PipelineSchedule schedule, pipeline_schedule(shape));
  const std::vector<std::string> problems = schedule_problems(shape, schedule);
  CHECK(problems.empty());
  TRY_ASSIGN(std::unique_ptr<model::MicroBatch> trained, make_micro_batch(PassMode::kTrain));
  const auto counted = static_cast<double>(counted_per_step() * options_.mesh.data);
  executor_.emplace(
      ScheduleExecutor::Options{.actions = schedule[static_cast<size_t>(place_.pipeline)],
                                .counted = batch_design_.counted,
                                .gradient_scale = static_cast<float>(1.0 / counted)},
      std::move(trained),
      ScheduleExecutor::Parts{*model_, *store_, *exchange_, *scalars_, *ops_, stream_, *timer_});
  TRY_ASSIGN(evaluated_, make_micro_batch(PassMode::kEvaluate));
  return {};
}

BatchMemory Composition::batch_memory(size_t slot) const {
  CHECK(slot < kBatchSlots);
  return {.device = arena_->workspace(static_cast<size_t>(DevicePart::kBatches) + slot),
          .pinned = pinned_->workspace(static_cast<size_t>(PinnedPart::kBatches) + slot)};
}

Result<StepReport> Composition::run_step(BatchFeed& feed, const StepRequest& request) {
  TRY(timer_->begin());
  scalars_->clear(*ops_, stream_);
  exchange_->begin_step(*ops_);
  TRY(timer_->lap(StepPart::kUpdate));  // which begins with zeroes
  TRY(executor_->run(feed, [&]() -> Status {
    TRY(exchange_->update({.step = request.step,
                           .learning_rate = request.learning_rate,
                           .clip_norm = request.clip_norm,
                           .values = scalars_->on_device()}));
    return store_->updated(request.step);
  }));
  // Before the host waits for a stream that may stand behind a collective.
  TRY(exchange_->wait());
  TRY(store_->wait());
  TRY_ASSIGN(const StepValues values, scalars_->read(stream_));
  TRY_ASSIGN(const WorldTotals totals, add_up(world_, options_.mesh,
                                              {.loss_sum = values.loss_sum,
                                               .counted = counted_per_step(),
                                               .stop = request.stop ? 1 : 0,
                                               .busy = request.busy ? 1 : 0}));
  StepReport report{.numbers = {.loss = totals.loss, .gradient_norm = values.norm()},
                    .stop = totals.stop,
                    .busy = totals.busy};
  TRY(timer_->end(report.numbers));
  return report;
}

Status Composition::add_results_of(const DeviceBatch& batch) {
  TRY(evaluated_->begin({.batch = batch}));
  TRY(model::forward_pass(*model_, *store_, *evaluated_));
  scalars_->add_results(*ops_, stream_, *evaluated_);
  return {};
}

// Without a batch the others still need this rank's shards.
Status Composition::evaluate_one(const std::optional<DeviceBatch>& batch) {
  if (batch) return add_results_of(*batch);
  const Stage& stage = model_->stage();
  for (model::BlockUse use{.block = stage.begin}; use.block < stage.end; ++use.block) {
    TRY(store_->get(use));
    store_->release(use);
  }
  return {};
}

Result<std::optional<Evaluation>> Composition::evaluate(
    BatchFeed& feed, const std::function<bool()>& stop_requested) {
  RankTotals mine;
  scalars_->clear(*ops_, stream_);
  while (true) {
    TRY_ASSIGN(std::optional<DeviceBatch> batch, feed.next());
    if (batch && stop_requested()) mine.stop = 1;
    bool goes_on = batch.has_value() && mine.stop == 0;
    bool stops = mine.stop != 0;
    if (computes_together()) {
      TRY_ASSIGN(const WorldTotals all,
                 add_up(world_, options_.mesh, {.counted = goes_on ? 1 : 0, .stop = mine.stop}));
      stops = all.stop;
      goes_on = all.counted > 0;
    }
    if (stops || !goes_on) break;
    TRY(evaluate_one(batch));
    if (batch) mine.counted += batch->counted;
  }
  TRY(store_->wait());
  TRY_ASSIGN(const StepValues values, scalars_->read(stream_));
  mine.loss_sum = values.loss_sum;
  mine.right = values.right;
  TRY_ASSIGN(const WorldTotals totals, add_up(world_, options_.mesh, mine));
  if (totals.stop) return std::optional<Evaluation>();
  Evaluation evaluation{.loss = totals.loss};
  if (batch_design_.has_accuracy) evaluation.accuracy = totals.accuracy;
  return std::optional(evaluation);
}

Result<std::optional<std::vector<int32_t>>> Composition::generate(model::GenerateOptions options) {
  if (place_.data != 0 && !computes_together()) return std::optional<std::vector<int32_t>>();
  options.memory = {.device = part_of(*arena_, DevicePart::kActivations),
                    .pinned = part_of(*pinned_, PinnedPart::kSample)};
  TRY_ASSIGN(std::vector<int32_t> tokens, model_->generate(*store_, options));
  TRY(store_->wait());
  if (place_.data != 0) return std::optional<std::vector<int32_t>>();
  return std::optional(std::move(tokens));
}

}  // namespace lockstep::parallel
